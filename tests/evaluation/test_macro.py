"""Macro averages: the mean over classes of the mean of each class."""

import math

import numpy as np
import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import Metric, evaluate, format_score, list_metrics, parse_metrics
from equimetric.seeding import derive_seed

QUERIES = ["recall@1", "precision@3", "map@3", "ndcg@3", "r_precision", "map@r", "map", "mrr"]
PAIRS = ["tar@far=0.1", "far@distance=0.9", "frr@distance=0.9", "alignment"]


def space(seed=0, sizes=(2, 3, 5, 9, 20, 1)):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.tensor(sizes))
    centres = torch.randn(len(sizes), 4, generator=generator, dtype=torch.float64)
    return centres[labels] + torch.randn(len(labels), 4, generator=generator, dtype=torch.float64), labels


def plain_mean(values):
    counted = [value for value in values if not math.isnan(value)]
    return math.fsum(counted) / len(counted)


def test_the_prefix_is_parsed():
    parsed = Metric.parse("macro:tar@far=1e-3")
    assert (parsed.name, parsed.family, parsed["far"], parsed.macro) == ("macro:tar@far=1e-3", "tar@far=F", 1e-3, True)
    assert not Metric.parse("recall@1").macro
    assert [one.name for one in parse_metrics(["recall@1", "macro:recall@1"])] == ["recall@1", "macro:recall@1"]
    assert format_score("macro:recall@1", 0.5).strip() == "50.00%"


@pytest.mark.parametrize("lone", ["exclude", "zero"])
def test_the_mean_of_the_means_of_classes_by_definition(lone):
    embeddings, labels = space()
    result = evaluate(embeddings, labels, metrics=[*QUERIES, *(f"macro:{name}" for name in QUERIES)], lone=lone)
    for name in QUERIES:
        scores = result.per_query[name].tolist()
        of_classes = [
            [
                score
                for score, label in zip(scores, labels.tolist(), strict=True)
                if label == c and not math.isnan(score)
            ]
            for c in range(6)
        ]
        means = [sum(some) / len(some) for some in of_classes if some]
        assert len(means) == (5 if lone == "exclude" else 6)
        assert result[f"macro:{name}"] == pytest.approx(sum(means) / len(means), rel=1e-14)
        assert result[f"macro:{name}"] != pytest.approx(result[name], rel=1e-3)
        assert f"macro:{name}" not in result.per_query


def test_recall_by_loops():
    embeddings, labels = space(3)
    unit = torch.nn.functional.normalize(embeddings)
    nearest = (unit @ unit.T).fill_diagonal_(-2).argmax(dim=1)
    hits = (labels[nearest] == labels).double()
    expected = [float(hits[labels == c].mean()) for c in range(5)]
    assert evaluate(embeddings, labels, metrics="macro:recall@1")["macro:recall@1"] == pytest.approx(np.mean(expected))


def test_rates_of_classes_at_the_common_threshold():
    embeddings, labels = space(1)
    result = evaluate(embeddings, labels, metrics=[*PAIRS, *(f"macro:{name}" for name in PAIRS)])
    for name in PAIRS:
        of_classes = [scores[name] for scores in result.per_class.values()]
        assert result[f"macro:{name}"] == pytest.approx(plain_mean(of_classes))
    unit = torch.nn.functional.normalize(embeddings)
    pairs = [
        (int(labels[i]), int(labels[j]), float((unit[i] - unit[j]).norm())) for i in range(40) for j in range(i + 1, 40)
    ]
    negative = sorted(d for a, b, d in pairs if a != b)
    threshold = negative[math.floor(0.1 * len(negative) + 1e-9)]
    tar = [np.mean([d < threshold - 1e-12 for a, b, d in pairs if a == b == c]) for c in range(5)]
    assert result["macro:tar@far=0.1"] == pytest.approx(np.mean(tar))


def test_intervals_and_comparisons_draw_classes():
    embeddings, labels = space(2)
    result = evaluate(embeddings, labels, metrics=["macro:map@r", "macro:tar@far=0.1"])
    interval = result.interval("macro:map@r", draws=500, seed=7)
    means = result.score_per_class["macro:map@r"].numpy()
    means = means[~np.isnan(means)]
    drawn = np.random.default_rng(derive_seed(7, "bootstrap")).integers(5, size=(500, 5))
    values = means[drawn].mean(axis=1)
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])))
    assert interval.standard_error == pytest.approx(values.std(ddof=1))
    assert result.interval("macro:tar@far=0.1").classes == 5
    other = evaluate(embeddings + 0.5, labels, metrics=["macro:map@r", "macro:tar@far=0.1"])
    comparison = result.compare(other)
    assert comparison["macro:map@r"].test == "sign flips"
    assert set(comparison) == {"macro:map@r", "macro:tar@far=0.1"}


@pytest.mark.parametrize("name", [name for family in list_metrics() if not family.macro for name in family.examples])
def test_other_metrics_have_no_macro_average(name):
    with pytest.raises(EquimetricError, match="has no macro average; write it without 'macro:'"):
        parse_metrics([f"macro:{name}"])


@pytest.mark.parametrize("name", [name for family in list_metrics() if family.macro for name in family.examples])
def test_every_macro_average_depends_on_neither_tiles_nor_order(name):
    embeddings, labels = space(5)
    macro = f"macro:{name}"
    expected = evaluate(embeddings, labels, metrics=macro)
    assert evaluate(embeddings, labels, metrics=macro, block_rows=3)[macro] == pytest.approx(expected[macro])
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    assert evaluate(embeddings[order], labels[order], metrics=macro)[macro] == pytest.approx(expected[macro])


def test_a_misspelt_name_is_suggested():
    with pytest.raises(EquimetricError, match="did you mean 'recall@1'"):
        parse_metrics("macro:recal@1")
