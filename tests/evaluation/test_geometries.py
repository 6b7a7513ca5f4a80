"""Distances of every geometry, excluded pairs of the same image, candidates in low precision."""

import json
from pathlib import Path

import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.scan import scan
from equimetric.evaluation.engine.similarity import SimilarityMatrix

WORKED = json.loads((Path(__file__).parents[1] / "worked_values/retrieval_metrics.json").read_text(encoding="utf-8"))
METRICS = ["recall@2", "precision@3", "map@4", "r_precision", "map@r", "map", "mrr"]


@pytest.fixture
def space():
    generator = torch.Generator().manual_seed(3)
    return torch.randn(60, 5, generator=generator), torch.randint(0, 7, (60,), generator=generator)


def check(result, reference):
    assert result.neighbours.tolist() == reference.rankings
    assert dict(result) == pytest.approx({name: reference.scores[name] for name in result})


def test_euclidean_distances_rank_as_by_definition(space, reference):
    embeddings, labels = space
    embeddings = embeddings.mul(4).round() / 4  # many ties
    result = evaluate(embeddings, labels, geometry="euclidean", metrics=METRICS, neighbours=59)
    check(result, reference(embeddings, labels.tolist(), ks=(2, 3, 4), geometry="euclidean"))


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e25])
def test_euclidean_distances_against_a_gallery_at_any_scale(space, reference, scale):
    embeddings, labels = space[0] * scale, space[1]
    result = evaluate(
        embeddings[:20], labels[:20], embeddings[20:], labels[20:], geometry="euclidean", metrics=METRICS, neighbours=40
    )
    exact = embeddings.double() / scale  # float32 numbers: their squares are far from under- and overflow
    expected = reference(
        exact[:20], labels[:20].tolist(), exact[20:], labels[20:].tolist(), (2, 3, 4), geometry="euclidean"
    )
    check(result, expected)


def test_hamming_distances_rank_as_by_definition(space, reference):
    embeddings, labels = space
    bits = torch.where(embeddings > 0, 1.0, -1.0)
    result = evaluate(embeddings, labels, geometry="hamming", metrics=METRICS, neighbours=59)
    check(result, reference(bits, labels.tolist(), ks=(2, 3, 4)))


class Distances(Collector):
    def __init__(self):
        self.rows = []

    def collect(self, tile):
        self.rows.append((tile.rows.clone(), tile.distance()))


def distances(embeddings, geometry):
    sets = prepare_sets(embeddings, [0, 0, 1, 1, 2, 2][: len(embeddings)], geometry=geometry)
    collector = Distances()
    scan(SimilarityMatrix.from_sets(sets), [collector], block_rows=2)
    rows, found = (torch.cat(parts) for parts in zip(*collector.rows, strict=True))
    return found[rows.argsort()].fill_diagonal_(0)


def test_distances_of_every_geometry():
    vectors = 3 * torch.randn(6, 4, dtype=torch.float64)
    unit = torch.nn.functional.normalize(vectors, dim=1)
    torch.testing.assert_close(distances(vectors, "euclidean"), torch.cdist(vectors, vectors))
    torch.testing.assert_close(distances(vectors, "cosine"), torch.cdist(unit, unit))
    torch.testing.assert_close(distances(vectors, "dot"), -(vectors @ vectors.T).fill_diagonal_(0))
    worked = WORKED["hamming"]
    assert distances(torch.tensor(worked["embeddings"]), "hamming").tolist() == worked["distances"]


def test_tiles_come_class_by_class_and_excluded_pairs_are_infinitely_far():
    labels = torch.tensor([2, 0, 1, 0, 2, 2, 1, 2])
    sets = prepare_sets(torch.randn(8, 3), labels)
    collector = Distances()
    scan(SimilarityMatrix.from_sets(sets), [collector], block_rows=3)
    rows, found = (torch.cat(parts) for parts in zip(*collector.rows, strict=True))
    assert rows.tolist() == [1, 3, 2, 6, 0, 4, 5, 7]
    assert torch.equal(found.isinf(), rows[:, None] == torch.arange(8))


def test_unknown_geometries():
    with pytest.raises(EquimetricError, match="unknown geometry 'cosines'; did you mean 'cosine'"):
        evaluate(torch.randn(4, 2), [0, 0, 1, 1], geometry="cosines")


@pytest.mark.parametrize("geometry", ["dot", "euclidean"])
def test_the_same_image_in_queries_and_gallery_is_not_compared(space, reference, geometry):
    embeddings, labels = space
    queries, gallery = embeddings[:40], embeddings[20:]
    result = evaluate(
        queries,
        labels[:40],
        gallery,
        labels[20:],
        query_ids=torch.arange(40),
        gallery_ids=torch.arange(20, 60),
        geometry=geometry,
        metrics=METRICS,
        neighbours=40,
    )
    expected = reference(
        queries,
        labels[:40].tolist(),
        gallery,
        labels[20:].tolist(),
        (2, 3, 4),
        geometry,
        same_image=lambda query, item: query == item + 20,
    )
    existing = [[item for item in row if item >= 0] for row in result.neighbours.tolist()]
    assert existing == expected.rankings
    assert result.neighbours[20:, -1].tolist() == [-1] * 20
    assert dict(result) == pytest.approx({name: expected.scores[name] for name in result})


def test_copies_of_an_image_within_one_set_are_not_compared(space, reference):
    embeddings, labels = space
    ids = [f"image {number % 50}" for number in range(60)]
    result = evaluate(embeddings, labels, geometry="dot", query_ids=ids, metrics=METRICS)
    expected = reference(
        embeddings, labels.tolist(), ks=(2, 3, 4), same_image=lambda one, other: one % 50 == other % 50
    )
    assert dict(result) == pytest.approx({name: expected.scores[name] for name in result})


def test_a_query_whose_only_relevant_item_is_itself_is_lone():
    embeddings, labels = torch.randn(5, 3), ["a", "a", "b", "b", "b"]
    result = evaluate(embeddings, labels, query_ids=[1, 1, 2, 3, 4], metrics=["recall@4", "map", "mrr"])
    assert result.lone == 2
    assert result.per_query["map"].isnan().tolist() == [True, True, False, False, False]
    assert result["recall@4"] == 1
    assert evaluate(embeddings, labels, query_ids=[1, 1, 2, 3, 4], lone="zero", metrics=["mrr"])["mrr"] < 0.61


def test_ids_that_cannot_be_used():
    embeddings, labels = torch.randn(4, 2), [0, 0, 1, 1]
    both = {"gallery_embeddings": embeddings, "gallery_labels": labels}
    for options in (
        {"gallery_ids": labels},
        {"query_ids": labels, "gallery_ids": labels},
        {"query_ids": labels} | both,
    ):
        with pytest.raises(EquimetricError, match="give query_ids and gallery_ids with a gallery, query_ids alone"):
            evaluate(embeddings, labels, **options)
    with pytest.raises(EquimetricError, match="there are 4 embeddings but 3 query_ids"):
        evaluate(embeddings, labels, query_ids=[1, 2, 3])
    with pytest.raises(EquimetricError, match="query_ids and gallery_ids must both be integers or both be strings"):
        evaluate(embeddings, labels, **both, query_ids=list("abcd"), gallery_ids=[1, 2, 3, 4])


NEAREST_ONLY = ["recall@1", "precision@5", "map@10", "r_precision", "map@r"]


@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "dot"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_candidates_found_in_bfloat16_give_the_same_result(geometry, dtype, spread):
    # A narrow space has more candidates than are read; duplicates are ties in every precision.
    generator = torch.Generator().manual_seed(11)
    embeddings = torch.randn(1, 24, generator=generator) + spread * torch.randn(400, 24, generator=generator)
    embeddings[300:] = embeddings[100:200]
    options = {"metrics": NEAREST_ONLY, "neighbours": 20, "geometry": geometry, "block_rows": 150}
    labels = torch.arange(400) % 30
    plain = evaluate(embeddings.to(dtype), labels, **options, prefilter="none")
    coarse = evaluate(embeddings.to(dtype), labels, **options, prefilter="bfloat16")
    assert coarse == plain
    assert torch.equal(coarse.neighbours, plain.neighbours)
    name = str(dtype).removeprefix("torch.")
    assert plain.path.startswith(f"{name} products")
    assert coarse.path == f"bfloat16 products, candidates taken again in {name} on cpu"


def test_candidates_found_in_bfloat16_against_a_gallery_without_the_same_images(space):
    embeddings, labels = space
    arguments = (embeddings[:30], labels[:30], embeddings[10:], labels[10:])
    ids = {"query_ids": torch.arange(30), "gallery_ids": torch.arange(10, 60)}
    results = [
        evaluate(*arguments, **ids, metrics=NEAREST_ONLY, neighbours=50, prefilter=prefilter)
        for prefilter in ("none", "bfloat16", "auto")
    ]
    for result in results[1:]:
        assert result == results[0]
        assert torch.equal(result.neighbours, results[0].neighbours)


def test_coarse_similarities_stay_within_their_tolerance():
    vectors = torch.nn.functional.normalize(torch.randn(200, 100), dim=1) * 10.0 ** torch.randint(-3, 4, (200, 1))
    matrix = SimilarityMatrix(vectors[:80], vectors[80:], geometry="dot")
    rows = torch.arange(80)
    error = (matrix.coarse_similarity(rows).double() - matrix.exact_rows(rows)).abs()
    assert (error <= matrix.coarse_tolerance(rows) / 2).all()


def test_prefilters_that_cannot_be_used(space):
    with pytest.raises(EquimetricError, match="unknown prefilter 'bf16'; did you mean"):
        evaluate(*space, prefilter="bf16")
    for options in ({"metrics": "mrr"}, {"geometry": "hamming"}):
        with pytest.raises(EquimetricError, match="prefilter='bfloat16' finds nearest neighbours only"):
            evaluate(*space, prefilter="bfloat16", **options)
