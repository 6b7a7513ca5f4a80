"""The result of an evaluation as an object, and metrics that plug into it."""

import json
import sys
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import METRICS, evaluate, metric
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.evidence import Detail, Score, average_by_class

EMBEDDINGS = torch.randn(8, 3, generator=torch.Generator().manual_seed(2))
LABELS = ["pear", "fig", "fig", "pear", "plum", "fig", "kiwi", "plum"]


@pytest.fixture
def result():
    return evaluate(EMBEDDINGS, LABELS, metrics=["recall@2", "map"])


def test_scores_of_classes_are_means_over_their_queries(result):
    assert set(result.per_class) == {"pear", "fig", "plum", "kiwi"}
    scores = result.per_query["map"]
    assert result.per_class["fig"]["map"] == pytest.approx(scores[[1, 2, 5]].mean().item())
    assert result.per_class["plum"]["recall@2"] == pytest.approx(result.per_query["recall@2"][[4, 7]].mean().item())
    assert np.isnan(result.per_class["kiwi"]["map"])


def test_classes_without_queries_are_not_among_the_scores():
    result = evaluate(EMBEDDINGS[:4], [1, 2, 2, 1], EMBEDDINGS, [1, 2, 3, 3, 3, 1, 2, 9], metrics="mrr")
    assert set(result.per_class) == {1, 2}
    assert result.class_labels == (1, 2, 3, 9)
    assert (result.queries, result.gallery) == (4, 8)
    assert repr(result).startswith("Evaluation: 4 queries against 8 gallery items, 4 classes (cosine, float32")


def test_written_as_json(result, tmp_path):
    result.to_json(tmp_path / "result.json")
    written = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert written["metrics"] == dict(result)
    assert written["path"] == "float32 products on cpu"
    kiwi = next(scores for scores in written["per_class"] if scores["class"] == "kiwi")
    assert kiwi == {"class": "kiwi", "recall@2": None, "map": None}


def test_a_table_of_queries_for_pandas(result, monkeypatch):
    pandas = ModuleType("pandas")
    pandas.DataFrame = dict
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    table = result.to_dataframe()
    assert list(table) == ["label", "recall@2", "map"]
    assert table["label"] == LABELS
    np.testing.assert_array_equal(table["map"], result.per_query["map"].numpy())
    assert evaluate(EMBEDDINGS[:4], [5, 5, 2**40, 2**40]).to_dataframe()["label"].tolist() == [5, 5, 2**40, 2**40]


def test_libraries_that_are_missing_are_named(result, monkeypatch, tmp_path):
    for name in ("pandas", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        EquimetricError, match="a DataFrame needs pandas, which is not installed; run: pip install pandas"
    ):
        result.to_dataframe()
    with pytest.raises(EquimetricError, match=r"a Parquet file needs pyarrow, .* run: pip install pyarrow"):
        result.to_parquet(tmp_path / "result.parquet")


class Largest(Collector):
    """The largest similarity of every query; counts how often it is built and how many tiles it reads."""

    built = tiles = 0

    def __init__(self, sets, options, metrics):
        super().__init__(sets, options, metrics)
        type(self).built += 1
        self.names = sorted(one.name for one in metrics)
        self.largest = torch.zeros(len(sets.queries), dtype=torch.float64)

    def collect(self, tile):
        type(self).tiles += 1
        self.largest[tile.rows] = tile.similarity.max(dim=1).values.double()

    def finish(self):
        self.largest *= self.options["factor"]


class Norms(Collector):
    reads_tiles = False

    def finish(self):
        self.mean = self.sets.queries.norm(dim=1).mean().item()


@dataclass(frozen=True)
class NormDetail(Detail):
    norms: np.ndarray
    range: tuple


def power_of_largest(metric, evidence):
    assert evidence[Largest].names == ["largest^1", "largest^2"]
    return Score.from_queries(evidence[Largest].largest ** metric["power"])


def mean_norm(metric, evidence):
    details = (NormDetail(np.ones((2, 2)), (1, 2)),)
    return Score(evidence[Norms].mean, per_class=torch.arange(4.0), details=details)


@pytest.fixture
def plugged(monkeypatch):
    METRICS.discover()
    for name in ("_records", "_modules"):
        monkeypatch.setattr(METRICS, name, dict(getattr(METRICS, name)))
    metric(
        "largest^P",
        pattern=r"largest\^(?P<power>[0-9])",
        parameters={"power": int},
        examples=("largest^1",),
        collectors=(Largest,),
        options={"factor": 1.0},
    )(power_of_largest)
    metric("norm", examples=("norm",), collectors=(Norms,), percent=False)(mean_norm)
    monkeypatch.setattr(Largest, "built", 0)
    monkeypatch.setattr(Largest, "tiles", 0)


def test_metrics_share_collectors_and_the_scan(plugged):
    result = evaluate(EMBEDDINGS, LABELS, metrics=["largest^1", "norm", "largest^2"], block_rows=3, factor=2.0)
    assert (Largest.built, Largest.tiles) == (1, 3)
    assert list(result) == ["largest^1", "norm", "largest^2"]
    assert result["largest^2"] == pytest.approx((result.per_query["largest^1"] ** 2).mean().item())
    assert result["norm"] == pytest.approx(1)
    assert set(result.per_query) == {"largest^1", "largest^2"}
    assert result.per_class["pear"]["norm"] == 2
    assert result.detail(NormDetail).range == (1, 2)
    assert repr(result).splitlines()[2] == "  norm              1"


def test_no_scan_where_nothing_reads_tiles(plugged):
    evaluate(EMBEDDINGS, LABELS, metrics="norm")
    assert (Largest.built, Largest.tiles) == (0, 0)


def test_two_dimensional_details_are_not_written(plugged, tmp_path):
    evaluate(EMBEDDINGS, LABELS, metrics="norm").to_json(tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["details"] == {"range": [1, 2]}


def test_unknown_options_and_names(plugged):
    with pytest.raises(EquimetricError, match="unknown option of evaluate 'factors'; did you mean 'factor'"):
        evaluate(EMBEDDINGS, LABELS, metrics="norm", factors=3)
    with pytest.raises(EquimetricError, match="unknown metric 'norms'; did you mean 'norm'"):
        evaluate(EMBEDDINGS, LABELS, metrics="norms")


def test_class_means_exclude_queries_that_do_not_count():
    scores = torch.tensor([1.0, torch.nan, 0.5, 0.0, torch.nan], dtype=torch.float64)
    means = average_by_class(scores, torch.tensor([0, 0, 1, 1, 2]), 4).tolist()
    assert means[:2] == [1.0, 0.25]
    assert np.isnan(means[2:]).all()
