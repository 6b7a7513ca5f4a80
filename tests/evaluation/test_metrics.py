"""Metric names: parsed without embeddings, listed, and added by one file."""

import subprocess
import sys

import pytest

from equimetric.errors import EquimetricError
from equimetric.evaluation import METRICS, Metric, default_metrics, list_metrics, parse_metrics
from equimetric.evaluation.families import check_metric_options


@pytest.mark.parametrize(
    ("name", "family", "parameters"),
    [
        ("recall@10", "recall@K", {"k": 10}),
        ("map@3", "map@K", {"k": 3}),
        ("map@r", "map@r", {}),
        ("map", "map", {}),
        ("tar@far=1e-3", "tar@far=F", {"far": 1e-3}),
        ("far@distance=.9", "far@distance=D", {"distance": 0.9}),
        ("opis", "opis@P%", {"share": None}),
        ("opis@10%", "opis@P%", {"share": 0.1}),
        ("pi_ratio", "pi_KIND", {"kind": "ratio", "distance": "cosine"}),
        ("pi_intra_euclidean", "pi_KIND", {"kind": "intra", "distance": "euclidean"}),
        ("spectral_decay", "spectral_decay", {"reverse": False, "drop": 0}),
        ("spectral_decay_reverse@drop=2", "spectral_decay", {"reverse": True, "drop": 2}),
        ("alignment", "alignment@alpha=A", {"alpha": 2.0}),
        ("uniformity@t=0.5", "uniformity@t=T", {"t": 0.5}),
    ],
)
def test_a_name_has_a_family_and_typed_parameters(name, family, parameters):
    parsed = Metric.parse(name)
    assert (parsed.name, parsed.family, dict(parsed.parameters)) == (name, family, parameters)
    assert all(type(parsed[key]) is type(value) for key, value in parameters.items())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("recal@1", "unknown metric 'recal@1'; did you mean 'recall@1'"),
        (["map@r", "recall@0"], "unknown metric 'recall@0'"),
        ("tar@far=2", "the false accept rate 2.0 is not between 0 and 1"),
        ("opis@80%", "ε is 0.8"),
        ("alignment@alpha=0", "alpha is 0"),
        ([], "metrics is empty"),
    ],
)
def test_bad_names_are_found_without_embeddings(names, message):
    with pytest.raises(EquimetricError, match=message):
        parse_metrics(names)


def test_names_are_parsed_in_order_and_once():
    assert [one.name for one in parse_metrics(["map", "eer", "map"])] == ["map", "eer"]
    assert [one.name for one in parse_metrics("nmi")] == ["nmi"]
    assert default_metrics([1, 10]) == ["precision@1", "recall@1", "recall@10", "r_precision", "map@r"]


def test_options_have_defaults_and_are_checked():
    assert check_metric_options({"utility_c": 2.0})["utility_c"] == 2.0
    assert check_metric_options({})["clustering_runs"] == 1
    with pytest.raises(EquimetricError, match="did you mean 'clustering_runs'"):
        check_metric_options({"clustering_run": 2})


def test_every_family_is_listed_with_examples_that_are_its_own():
    families = list_metrics()
    assert {family.name for family in families} == set(METRICS)
    for family in families:
        assert family.summary
        assert family.examples
        assert {Metric.parse(example).family for example in family.examples} == {family.name}


NEW_METRIC = '''
"""Share of queries whose nearest item is farther than D."""
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.evidence import Score
from equimetric.evaluation.families import metric
from equimetric.evaluation.resampling.class_statistics import mean_over_classes
import torch

class Nearest(Collector):
    def prepare(self, matrix):
        self.distance = torch.zeros(len(self.sets.queries), dtype=torch.float64)

    def collect(self, tile):
        self.distance[tile.rows] = tile.distance().amin(dim=1).double()

def resample(metric, evaluation):
    return mean_over_classes(evaluation.score_per_class[metric.name])

@metric("isolated@D", pattern=r"isolated@(?P<d>[0-9.]+)", parameters={"d": float}, examples=("isolated@0.5",),
        collectors=(Nearest,), resample=resample)
def isolated(metric, evidence):
    """Share of queries whose nearest item is farther than D."""
    far = (evidence[Nearest].distance > metric["d"]).double()
    per_class = torch.zeros(2, dtype=torch.float64).index_add_(0, evidence.sets.query_classes, far) / 2
    return Score(per_class.mean().item(), per_class=per_class)
'''


def test_a_metric_is_added_by_one_file(tmp_path):
    (tmp_path / "isolated.py").write_text(NEW_METRIC)
    code = (
        "import sys, torch, equimetric.evaluation.metrics as room; room.__path__.append(sys.argv[1]);"
        "from equimetric.evaluation import evaluate, list_metrics;"
        "result = evaluate(torch.eye(4)[[0, 0, 1, 2]], [0, 0, 1, 1], metrics=['isolated@0.5', 'map@r']);"
        "found = result.interval('isolated@0.5', draws=50);"
        "print(result['isolated@0.5'], found.low, found.high, 'isolated@D' in [one.name for one in list_metrics()])"
    )
    shown = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["0.5", "0.0", "1.0", "True"]


def test_importing_evaluation_brings_nothing_heavy():
    code = "import torch, sys; before = set(sys.modules); import equimetric.evaluation, equimetric.calibration;"
    code += "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"scipy", "sklearn", "matplotlib", "pandas", "pyarrow", "PIL", "pydantic"} & set(loaded)
