"""The median rank of the first relevant item."""

import math
from statistics import median

import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import METRICS, evaluate, format_score


def space(queries=41, items=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(queries + items, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(12, (queries + items,), generator=generator)
    return rows[:queries], labels[:queries], rows[queries:], labels[queries:]


def first_ranks(queries, labels, gallery, gallery_labels):
    similarity = torch.nn.functional.normalize(queries) @ torch.nn.functional.normalize(gallery).T
    ranks = []
    for row, label in zip(similarity, labels, strict=True):
        order = row.argsort(descending=True, stable=True)
        hits = (gallery_labels[order] == label).nonzero()
        ranks.append(int(hits[0]) + 1 if len(hits) else math.inf)
    return ranks


@pytest.mark.parametrize("queries", [40, 41])
@pytest.mark.parametrize("block_rows", [None, 7])
def test_it_is_the_median_over_queries(queries, block_rows):
    arrays = space(queries)
    ranks = [rank for rank in first_ranks(*arrays) if rank < math.inf]
    found = evaluate(*arrays, metrics=["median_rank", "mrr"], block_rows=block_rows)
    assert found["median_rank"] == median(ranks)
    assert found["mrr"] == pytest.approx(sum(1 / rank for rank in ranks) / len(ranks))


def test_lone_queries_are_left_out_or_have_an_infinite_rank():
    queries, labels, gallery, gallery_labels = space()
    labels = torch.cat([labels[:9], torch.full((len(labels) - 9,), 99)])
    ranks = first_ranks(queries, labels, gallery, gallery_labels)
    found = evaluate(queries, labels, gallery, gallery_labels, metrics="median_rank")
    assert found["median_rank"] == median(rank for rank in ranks if rank < math.inf)
    assert evaluate(queries, labels, gallery, gallery_labels, metrics="median_rank", lone="zero")["median_rank"] == (
        math.inf
    )


def test_it_is_a_rank_and_no_mean():
    assert not METRICS["median_rank"].higher_is_better
    assert format_score("median_rank", 12.5).strip() == "12.5"
    with pytest.raises(EquimetricError, match="has no macro average"):
        evaluate(*space(), metrics="macro:median_rank")
    found = evaluate(*space(), metrics="median_rank")
    interval = found.interval("median_rank", draws=100)
    assert 1 <= interval.low <= interval.high
