"""nDCG: against the definition in plain loops, with binary and graded relevance, and ties."""

import math

import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate
from equimetric.evaluation.metrics.ndcg import ndcg

GAINS = {"linear": lambda grade: grade, "exponential": lambda grade: 2**grade - 1}
OVERLAPS = {
    "shared": lambda a, b: float(bool(a & b)),
    "jaccard": lambda a, b: len(a & b) / len(a | b) if a | b else 0.0,
}


def cumulative_gain(grades, gain):
    return sum(GAINS[gain](grade) / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1))


def by_definition(similarity, tags, gallery_tags, k, overlap, gain, excluded):
    scores = []
    for i, row in enumerate(similarity):
        ranking = sorted((j for j in range(len(row)) if not excluded(i, j)), key=lambda j, row=row: (-row[j], j))
        grades = [OVERLAPS[overlap](tags[i], gallery_tags[j]) for j in ranking]
        if any(grades):
            best = cumulative_gain(sorted(grades, reverse=True)[:k], gain)
            scores.append(cumulative_gain(grades[:k], gain) / best)
    return sum(scores) / len(scores)


def space(rows, seed=0):
    """Small whole numbers: many similarities tie."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, (rows, 3), generator=generator).float(), torch.rand(rows, 6, generator=generator) < 0.35


def sets_of(matrix):
    return [frozenset(row.nonzero().flatten().tolist()) for row in matrix]


@pytest.mark.parametrize("gain", GAINS)
@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("k", [1, 4, 15, 99])
@pytest.mark.parametrize("block_rows", [None, 6])
def test_within_one_set(k, overlap, gain, block_rows):
    embeddings, labels = space(45)
    tags, similarity = sets_of(labels), (embeddings @ embeddings.T).tolist()
    expected = by_definition(similarity, tags, tags, k, overlap, gain, lambda i, j: i == j)
    options = {"geometry": "dot", "overlap": overlap, "gain": gain, "block_rows": block_rows}
    found = evaluate(embeddings, labels, metrics=[f"ndcg@{k}", "recall@1"], **options)
    assert found[f"ndcg@{k}"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_with_a_gallery_ids_and_parents(overlap):
    embeddings, labels = space(60, seed=1)
    tags, similarity = sets_of(labels), (embeddings[:20] @ embeddings[20:].T).tolist()
    ids, parents = torch.arange(60) % 23, torch.arange(60) % 2
    given = embeddings[:20], labels[:20], embeddings[20:], labels[20:]
    expected = by_definition(
        similarity,
        tags[:20],
        tags[20:],
        6,
        overlap,
        "linear",
        lambda i, j: bool(ids[i] == ids[20 + j]) or bool(parents[i] != parents[20 + j]),
    )
    found = evaluate(
        *given,
        metrics="ndcg@6",
        geometry="dot",
        overlap=overlap,
        query_ids=ids[:20],
        gallery_ids=ids[20:],
        parents=parents[:20],
        gallery_parents=parents[20:],
        block_rows=7,
    )
    assert found["ndcg@6"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("options", [{}, {"overlap": "jaccard"}, {"gain": "exponential"}])
def test_one_class_each_is_binary_whatever_the_options(options):
    embeddings, _ = space(45)
    labels = (torch.arange(45) * 7) % 5
    tags, similarity = [frozenset([label]) for label in labels.tolist()], (embeddings @ embeddings.T).tolist()
    expected = by_definition(similarity, tags, tags, 10, "shared", "linear", lambda i, j: i == j)
    found = evaluate(embeddings, labels, metrics="ndcg@10", geometry="dot", **options)
    assert found["ndcg@10"] == pytest.approx(expected, rel=1e-12)


def test_a_perfect_ranking_scores_one_and_none_zero():
    grades = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.0, 0.0]])
    assert ndcg(grades, grades).tolist() == [1.0, 0.0]
    assert ndcg(grades.flip(1), grades)[0] == pytest.approx((0.5 / math.log2(3) + 0.5) / (1 + 0.5 / math.log2(3)))


@pytest.mark.parametrize("option", [{"overlap": "dice"}, {"gain": "square"}])
def test_unknown_options_are_named(option):
    embeddings, labels = space(20)
    with pytest.raises(EquimetricError, match=f"unknown {next(iter(option))} '{next(iter(option.values()))}'"):
        evaluate(embeddings + 0.1, labels, metrics="ndcg@3", **option)
