"""Ties go to the lower gallery index; blocks, threads and the index of duplicates have no influence."""

import pytest
import torch
from rounding import assert_same_digits

from equimetric.evaluation import evaluate
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.exact import FixedPoint, exact_products, exact_rows
from equimetric.evaluation.engine.nearest import find_nearest
from equimetric.evaluation.engine.plan import plan_bands
from equimetric.evaluation.engine.positive_ranks import count_above
from equimetric.evaluation.engine.scan import scan
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.top_entries import first_k, top_entries
from equimetric.ops.blocks import TILE_BYTES, slices

LABELS = torch.randint(0, 6, (70,), generator=torch.Generator().manual_seed(1))


def duplicated(count, dimension, dtype=torch.float32):
    """Unit vectors of which most occur several times, far apart."""
    distinct = torch.nn.functional.normalize(torch.randn(count // 4 + 1, dimension, dtype=dtype), dim=1)
    return distinct[torch.randint(0, len(distinct), (count,))]


def signs(count, dimension=16):
    """Vectors of ±1: in 16 dimensions their length is 4, so that all similarities are exact and most are tied."""
    return torch.randint(0, 2, (count, dimension)) * 2.0 - 1.0


ALL = [*(f"{name}@{k}" for name in ("recall", "precision", "map") for k in (1, 2, 4, 8)), "r_precision", "map@r"]
ALL += ["map", "mrr"]


def check_against(result, reference):
    assert result.neighbours.tolist() == reference.rankings
    assert dict(result) == pytest.approx(reference.scores)


@pytest.mark.parametrize("block_rows", [1, 7, None])
def test_many_ties_rank_as_by_definition(reference, block_rows):
    embeddings = signs(70)
    result = evaluate(embeddings, LABELS, neighbours=69, block_rows=block_rows, metrics=ALL)
    check_against(result, reference(embeddings, LABELS.tolist()))


def test_many_ties_against_a_gallery(reference):
    queries, gallery, gallery_labels = signs(30), signs(50), torch.randint(0, 6, (50,))
    result = evaluate(queries, LABELS[:30], gallery, gallery_labels, neighbours=50, metrics=ALL)
    check_against(result, reference(queries, LABELS[:30].tolist(), gallery, gallery_labels.tolist()))


@pytest.mark.parametrize("depth", [1, 2, 5, 20])
def test_ties_across_the_last_rank(reference, depth):
    embeddings = torch.randint(-2, 3, (70, 3)).float()
    result = evaluate(embeddings, LABELS, metrics=[f"recall@{depth}"], neighbours=depth, geometry="dot")
    expected = reference(embeddings, LABELS.tolist(), ks=(depth,))
    assert result.neighbours.tolist() == [ranking[:depth] for ranking in expected.rankings]
    assert result[f"recall@{depth}"] == pytest.approx(expected.scores[f"recall@{depth}"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dimension", [3, 24])
def test_duplicates_are_ties_at_every_index(reference, threads, dtype, dimension):
    embeddings = duplicated(70, dimension, dtype)
    expected = reference(FixedPoint(embeddings).vectors, LABELS.tolist())
    for count, block_rows in ((1, 1), (1, 7), (1, 70), (2, 33)):
        threads(count)
        result = evaluate(embeddings, LABELS, neighbours=69, block_rows=block_rows, geometry="dot", metrics=ALL)
        check_against(result, expected)


@pytest.mark.parametrize("noise", [0.0, 1e-7, 1e-4])
def test_a_collapsed_space_is_ranked_exactly(reference, noise):
    embeddings = torch.randn(1, 24) + noise * torch.randn(70, 24)
    result = evaluate(embeddings, LABELS, neighbours=69, geometry="dot", metrics=ALL)
    check_against(result, reference(embeddings, LABELS.tolist()))


def test_lengths_of_every_magnitude(reference):
    embeddings = duplicated(70, 5) * 10.0 ** torch.randint(-9, 9, (70, 1))
    result = evaluate(embeddings, LABELS, neighbours=69, geometry="dot", metrics=ALL)
    check_against(result, reference(embeddings, LABELS.tolist()))


@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "dot", "hamming"])
def test_block_size_and_threads_change_nothing(threads, geometry):
    embeddings, labels = torch.randn(160, 64), torch.arange(160) % 20
    embeddings[80:] = embeddings[:80].flip(0)
    options = {"neighbours": 40, "geometry": geometry, "metrics": ALL}
    expected = evaluate(embeddings, labels, **options)
    for count, block_rows in ((1, 5), (1, 65), (2, 65)):
        threads(count)
        result = evaluate(embeddings, labels, **options, block_rows=block_rows)
        assert result == expected
        assert torch.equal(result.neighbours, expected.neighbours)
        assert all(torch.equal(result.per_query[name], expected.per_query[name]) for name in expected)


def test_the_order_among_relevant_neighbours_changes_no_metric():
    embeddings, labels = duplicated(300, 8), torch.randint(0, 9, (300,))
    assert evaluate(embeddings, labels) == evaluate(embeddings, labels, neighbours=299)


def test_the_query_is_excluded_by_index_but_not_its_duplicates():
    embeddings = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 2)
    neighbours = evaluate(embeddings, [0, 0, 1, 1, 1], neighbours=4).neighbours
    assert neighbours.tolist() == [[1, 2, 3, 4], [0, 2, 3, 4], [0, 1, 3, 4], [4, 0, 1, 2], [3, 0, 1, 2]]


def test_first_k_takes_the_lowest_indices_of_a_tie():
    similarity = torch.tensor([[5.0, 7.0, 5.0, 5.0, 9.0], [1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    assert first_k(similarity, 3).tolist() == [[4, 1, 0], [0, 1, 2], [4, 3, 2]]


@pytest.mark.parametrize(("items", "width"), [(4000, 3), (4000, 15), (1001, 40), (60, 50)])
def test_top_entries_are_those_of_topk(items, width):
    similarity = torch.randn(9, items)
    values, columns = top_entries(similarity, width)
    expected = similarity.topk(width, dim=1)
    assert torch.equal(values, expected.values)
    assert torch.equal(columns, expected.indices)


@pytest.mark.parametrize("thresholds", [1, 5, 40])
def test_counting_by_passes_and_by_sorting(thresholds):
    values = torch.randint(0, 9, (7, 300)).float()
    asked = torch.randint(-1, 10, (7, thresholds)).float()
    asked[0, 0], values[1, 3] = -torch.inf, -torch.inf
    assert torch.equal(count_above(values, asked), (values[:, None, :] > asked[:, :, None]).sum(dim=2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dimension", [1, 2, 300, 1025])
def test_exact_products_do_not_depend_on_the_order_of_summation(dtype, dimension):
    vectors = torch.nn.functional.normalize(torch.rand(40, dimension, dtype=dtype), dim=1)
    shuffled = vectors[:, torch.randperm(dimension)]
    pairs = torch.cartesian_prod(torch.arange(40), torch.arange(40)).unbind(1)
    one, other = FixedPoint(vectors), FixedPoint(shuffled)
    products = exact_products(one, one, *pairs)
    assert torch.equal(products, exact_products(other, other, *pairs))
    assert torch.equal(products.view(40, 40), exact_rows(one, one, torch.arange(40)))
    assert_same_digits(products.view(40, 40), vectors.double() @ vectors.double().T, digits=12)


@pytest.mark.parametrize("dimension", [2, 64, 128, 512, 1024])
@pytest.mark.parametrize("largest", [0.2, 1.0, 30.0])
def test_rounding_in_a_tile_stays_within_its_tolerance(dimension, largest):
    # One large entry and equal others: every step rounds in the same direction, the worst case.
    vectors = torch.rand(100, 1).expand(100, dimension).clone()
    vectors[:, 0] = largest * dimension**0.5 * (torch.rand(100) + 0.5)
    matrix = SimilarityMatrix(torch.nn.functional.normalize(vectors, dim=1))
    exact = exact_rows(matrix.queries, matrix.gallery, torch.arange(100))
    for block_rows in (1, 7, 100):
        for rows in slices(100, block_rows):
            rows = torch.arange(100)[rows]
            off_diagonal = rows[:, None] != torch.arange(100)
            error = (matrix.similarity(rows).double() - exact[rows])[off_diagonal].abs().max()
            assert error <= matrix.tolerance(rows, torch.float32).min() / 2


class Keep(Collector):
    """Keeps the result of `taken` for each tile."""

    def __init__(self, taken):
        self.taken, self.tiles = taken, []

    def collect(self, tile):
        self.tiles.append(self.taken(tile))


def shape(tile):
    assert tile.similarity.dtype == torch.float32
    return tile.rows[0].item(), *tile.similarity.shape


def test_a_scan_visits_every_query_once_in_bounded_tiles_of_full_precision():
    collectors = Keep(shape), Keep(shape)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scan(SimilarityMatrix(torch.randn(10, 3), torch.randn(25, 3)), collectors, block_rows=4)
    assert collectors[0].tiles == collectors[1].tiles == [(0, 4, 25), (4, 4, 25), (8, 2, 25)]


def test_the_default_tile_keeps_to_its_budget():
    gallery = torch.zeros(1, 1).expand(200_000, 1)
    matrix = SimilarityMatrix(torch.ones(1000, 1), gallery)
    rows = plan_bands(matrix, [], None, coarse=False).bands[0].stop
    assert rows * 200_000 * 4 <= TILE_BYTES
    assert rows >= 64


def test_find_nearest_orders_all_ranks_by_default():
    vectors = duplicated(50, 6)
    matrix = SimilarityMatrix(vectors)
    ranked = Keep(lambda tile: find_nearest(tile, 10))
    scan(matrix, [ranked], block_rows=20)
    assert torch.equal(torch.cat(ranked.tiles), first_k(matrix.exact_rows(torch.arange(50)), 10))
