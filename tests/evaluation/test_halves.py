"""Half of the matrix, every pair once, gives the same neighbours and scores as the whole."""

import pytest
import torch

from equimetric.evaluation import evaluate
from equimetric.evaluation.engine import candidates
from equimetric.evaluation.engine.candidates import HalfMatrixCandidates
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.half_matrix import HalfMatrixTopK
from equimetric.evaluation.engine.scan import scan
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.metrics import rankings

METRICS = ["recall@1", "precision@5", "map@8", "r_precision", "map@r"]


class KeepLeading(Collector):
    def __init__(self, half):
        self.half = half

    def accepts_strips(self):
        return True

    def collect_strip(self, strip):
        self.half.take(strip)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("block_rows", "width"), [(64, 5), (48, 20), (7, 3), (7, 20), (100, 12)])
def test_top_entries_of_half_the_matrix_equal_those_of_whole_rows(block_rows, width, many, monkeypatch):
    monkeypatch.setattr(candidates, "SAMPLED", 40)
    matrix = SimilarityMatrix(torch.randn(300, 6), geometry="dot")
    collector = KeepLeading((HalfMatrixCandidates if many else HalfMatrixTopK)(matrix, width))
    assert scan(matrix, [collector], block_rows=block_rows) == "float32 products, each pair once, on cpu"
    values, columns = collector.half.entries(slice(None))
    expected = matrix.similarity(torch.arange(300)).topk(width, dim=1)
    torch.testing.assert_close(values, expected.values, rtol=0, atol=1e-5)
    assert torch.equal(columns, expected.indices)


@pytest.mark.parametrize("geometry", ["cosine", "dot"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("block_rows", "most_merged"), [(16, 64), (50, 64), (90, 64), (16, 0), (50, 0)])
def test_half_the_matrix_gives_the_same_result(monkeypatch, geometry, dtype, block_rows, most_merged):
    monkeypatch.setattr(rankings, "MAX_MERGED_ENTRIES", most_merged)
    monkeypatch.setattr(candidates, "SAMPLED", 30)
    monkeypatch.setattr(candidates, "SPARE_CAPACITY", 1)
    embeddings, labels = torch.randn(200, 12, dtype=dtype), torch.arange(200) % 23
    embeddings[120:] = embeddings[10:90].flip(0)  # ties, across strips and in the order of the later one
    embeddings[:9] = embeddings[0]
    options = {"metrics": METRICS, "neighbours": 12, "geometry": geometry, "block_rows": block_rows}
    halves = evaluate(embeddings, labels, **options)
    monkeypatch.setattr(rankings, "KEPT_BYTES", 0)
    whole = evaluate(embeddings, labels, **options)
    assert "each pair once" in halves.path
    assert "each pair once" not in whole.path
    assert halves == whole
    assert torch.equal(halves.neighbours, whole.neighbours)
    assert all(torch.equal(halves.per_query[name], whole.per_query[name]) for name in METRICS)


def test_half_the_matrix_excludes_the_same_images(reference):
    embeddings, labels = torch.randn(90, 5), torch.arange(90) % 6
    ids = torch.arange(90) % 40
    result = evaluate(embeddings, labels, query_ids=ids, geometry="dot", metrics=METRICS, neighbours=30, block_rows=20)
    expected = reference(
        embeddings, labels.tolist(), ks=(1, 5, 8), same_image=lambda one, other: one % 40 == other % 40
    )
    assert "each pair once" in result.path
    assert result.neighbours.tolist() == [ranking[:30] for ranking in expected.rankings]
    assert dict(result) == pytest.approx({name: expected.scores[name] for name in METRICS})


@pytest.mark.parametrize(
    ("options", "metrics"),
    [({"geometry": "hamming"}, ["map@r"]), ({"geometry": "euclidean"}, ["map@r"]), ({}, ["map@r", "mrr"])],
    ids=["hamming", "euclidean", "all ranks"],
)
def test_whole_rows_where_half_the_matrix_is_not_enough(options, metrics):
    result = evaluate(torch.randn(60, 4), torch.arange(60) % 5, metrics=metrics, block_rows=20, **options)
    assert result.path == "float32 products on cpu"
