"""A reference that follows the definitions literally: two loops, one sort, plain numbers."""

from fractions import Fraction

import pytest
import torch


def rank_by_definition(similarity, leave_one_out):
    """For each query the gallery indices by falling similarity, then rising index, without the query itself."""
    return [
        sorted((j for j in range(len(row)) if not (leave_one_out and j == i)), key=lambda j, row=row: (-row[j], j))
        for i, row in enumerate(similarity)
    ]


def score_by_definition(rankings, labels, gallery_labels, ks):
    """Metric → mean over the queries that have a relevant gallery item."""
    scores = {}
    for ranking, label in zip(rankings, labels, strict=True):
        relevant = [gallery_labels[j] == label for j in ranking]
        count = sum(relevant)
        if count == 0:
            continue
        of_query = {f"recall@{k}": float(any(relevant[:k])) for k in ks}
        of_query["precision@1"] = float(relevant[0])
        of_query["r_precision"] = sum(relevant[:count]) / count
        precision = [sum(relevant[: r + 1]) / (r + 1) for r in range(len(relevant))]
        precisions = [precision[r] * relevant[r] for r in range(len(relevant))]
        of_query["map@r"] = sum(precisions[:count]) / count
        of_query["map"] = sum(precisions) / count
        of_query["mrr"] = 1 / (1 + relevant.index(True))
        for k in ks:
            of_query[f"precision@{k}"] = sum(relevant[:k]) / k
            of_query[f"map@{k}"] = sum(precisions[:k]) / min(k, count)
        for name, score in of_query.items():
            scores.setdefault(name, []).append(score)
    return {name: sum(values) / len(values) for name, values in scores.items()}


def exact_distance(queries, gallery):
    """Squared Euclidean distances as exact fractions."""
    rows = [[Fraction(value) for value in row] for row in queries.tolist()]
    columns = [[Fraction(value) for value in row] for row in gallery.tolist()]
    return [[sum((a - b) ** 2 for a, b in zip(row, column, strict=True)) for column in columns] for row in rows]


def exact_similarity(queries, gallery):
    """Inner products as exact fractions."""
    rows = [[Fraction(value) for value in row] for row in queries.tolist()]
    columns = [[Fraction(value) for value in row] for row in gallery.tolist()]
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in rows]


class Reference:
    """Rankings and scores of a labelled set by the definitions, in exact arithmetic."""

    def __init__(
        self,
        embeddings,
        labels,
        gallery_embeddings=None,
        gallery_labels=None,
        ks=(1, 2, 4, 8),
        geometry="dot",
        same_image=lambda query, item: False,
    ):
        alone = gallery_embeddings is None
        gallery = embeddings if alone else gallery_embeddings
        if geometry == "euclidean":
            similarity = [[-distance for distance in row] for row in exact_distance(embeddings, gallery)]
        else:
            similarity = exact_similarity(embeddings, gallery)
        rankings = rank_by_definition(similarity, leave_one_out=alone)
        self.rankings = [[j for j in ranking if not same_image(i, j)] for i, ranking in enumerate(rankings)]
        self.scores = score_by_definition(self.rankings, labels, labels if alone else gallery_labels, ks)


@pytest.fixture
def reference():
    return Reference


@pytest.fixture
def definition():
    return score_by_definition


@pytest.fixture(autouse=True)
def threads():
    """One thread unless a test sets another number: most tests are too small for more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch.set_num_threads
    torch.set_num_threads(before)
