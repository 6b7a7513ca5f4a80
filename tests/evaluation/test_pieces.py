"""A scan read in pieces, by copies of its task and merged in any order, gives every bit of one that is read at once."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from spread import evaluate_in_pieces, identical, intervals, odd_ranges, read_in_copies

from equimetric.errors import EquimetricError
from equimetric.evaluation import Cohort, evaluate, list_metrics
from equimetric.evaluation.engine import binned_pairs, candidates, pair_distances, plan
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.exact_sums import ExactSums
from equimetric.evaluation.engine.plan import ScanPlan, plan_bands
from equimetric.evaluation.engine.scan import scan
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.metrics import rankings
from equimetric.ops.blocks import slices

EXAMPLES = [example for family in list_metrics() for example in family.examples]
OF_PAIRS = [family.examples[0] for family in list_metrics() if pair_distances.PairDistances in family.collectors]
NEAREST = ["recall@1", "precision@5", "map@8", "r_precision", "map@r", "ndcg@3"]
PAIRS = ["auc", "eer", "tar@far=1e-1", "opis", "opis_far", "macro:frr@distance=0.9", "threshold_gap@far=1e-1"]


def space(count=150, classes=9, dimension=5, dtype=torch.float32):
    generator = torch.Generator().manual_seed(4)
    labels = torch.randint(0, classes, (count,), generator=generator)
    centres = torch.randn(classes, dimension, generator=generator, dtype=dtype)
    return centres[labels] + 0.7 * torch.randn(count, dimension, generator=generator, dtype=dtype), labels


def assert_identical(plain, pieces):
    assert identical(plain, pieces)
    assert identical(intervals(plain), intervals(pieces))


@pytest.mark.parametrize("block_rows", [4, 31])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_registered_metric(name, block_rows):
    options = {"metrics": name, "neighbours": 3, "block_rows": block_rows}
    assert_identical(evaluate(*space(), **options), evaluate_in_pieces(*space(), **options))


@pytest.fixture
def bins(monkeypatch):
    """Pairs are counted in bins, positive ones too."""
    monkeypatch.setattr(pair_distances, "MAX_KEPT_PAIRS", 0)
    monkeypatch.setattr(binned_pairs, "POSITIVES_KEPT", 50)
    monkeypatch.setattr(binned_pairs, "BLOCK_ROWS", 8)
    monkeypatch.setattr(binned_pairs, "BLOCK_COLUMNS", 32)


@pytest.fixture
def few_columns(monkeypatch):
    """Tiles have 64 columns."""
    monkeypatch.setattr(plan, "TILE_BYTES", 64)
    monkeypatch.setattr(plan, "MIN_COLUMNS", 64)


@pytest.mark.usefixtures("bins")
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("name", [*OF_PAIRS, "uniformity"])
def test_counts_in_bins(name, columns, request):
    if columns:
        request.getfixturevalue("few_columns")
    options = {"metrics": [name, "opis_noise"], "block_rows": 13, "calibration_far": (0.05, 0.3)}
    assert_identical(evaluate(*space(200), **options), evaluate_in_pieces(*space(200), **options))


@pytest.mark.usefixtures("bins")
@pytest.mark.parametrize(("most_merged", "columns"), [(64, False), (64, True), (0, True)])
@pytest.mark.parametrize("metrics", [NEAREST, [*NEAREST, *PAIRS, "uniformity"], [*NEAREST, "mrr", *PAIRS]])
@pytest.mark.parametrize("geometry", ["cosine", "dot", "euclidean", "hamming", "l1"])
def test_geometries(geometry, metrics, most_merged, columns, request, monkeypatch):
    monkeypatch.setattr(rankings, "MAX_MERGED_ENTRIES", most_merged)
    monkeypatch.setattr(candidates, "SAMPLED", 30)
    monkeypatch.setattr(candidates, "SPARE_CAPACITY", 1)
    if columns:
        request.getfixturevalue("few_columns")
    embeddings, labels = space(180)
    embeddings[120:160] = embeddings[10:50].flip(0)  # ties, across bands and in the order of the later one
    embeddings[:9] = embeddings[0]
    if geometry in ("dot", "hamming", "l1"):
        metrics = [name for name in metrics if name != "uniformity"]
    options = {"metrics": metrics, "geometry": geometry, "neighbours": 12, "block_rows": 17}
    plain = evaluate(embeddings, labels, **options)
    assert_identical(plain, evaluate_in_pieces(embeddings, labels, **options))
    halves = geometry in ("cosine", "dot") and "mrr" not in metrics
    assert ("each pair once" in plain.path) == halves


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "hamming"])
def test_some_columns_at_a_time_rank_as_whole_rows(geometry, columns, request):
    embeddings, labels = space(260)
    embeddings[120:160] = embeddings[10:50].flip(0)
    embeddings[:30] = embeddings[0]
    queries = embeddings[::3], labels[::3]
    options = {"metrics": NEAREST, "geometry": geometry, "neighbours": 12}
    whole = [evaluate(embeddings, labels, **options), evaluate(*queries, embeddings, labels, **options)]
    request.getfixturevalue("few_columns")
    if columns:
        options["prefilter"] = "bfloat16" if geometry != "hamming" else "none"
    for expected, sets in zip(whole, [(embeddings, labels), (*queries, embeddings, labels)], strict=True):
        found = evaluate(*sets, **options, block_rows=20)
        assert dict(found) == dict(expected)
        assert torch.equal(found.neighbours, expected.neighbours)


def several_labels():
    embeddings, labels = space(120)
    return embeddings, torch.nn.functional.one_hot(labels, 9) | torch.nn.functional.one_hot((labels * 7) % 9, 9)


GIVEN = {
    "gallery": lambda: ((*space(70), *space(150)), {}),
    "ids": lambda: (space(150), {"query_ids": torch.arange(150) % 60}),
    "parents": lambda: (space(150), {"parents": space(150)[1] // 3}),
    "several labels": lambda: (several_labels(), {"overlap": "jaccard"}),
    "float64": lambda: (space(150, dtype=torch.float64), {}),
    "names": lambda: ((space(150)[0], [f"class {label}" for label in space(150)[1].tolist()]), {}),
    "lone": lambda: ((space(150)[0], torch.arange(150) // 2 * (torch.arange(150) > 40)), {"lone": "zero"}),
    "coarse": lambda: (space(150), {"prefilter": "bfloat16", "metrics": NEAREST}),
    "cohort": lambda: (space(150), {"cohort": Cohort(torch.randn(40, 5, generator=torch.Generator().manual_seed(1)))}),
}


@pytest.mark.parametrize("binned", [False, True])
@pytest.mark.parametrize("kind", GIVEN)
def test_what_is_given(kind, binned, request):
    if binned:
        request.getfixturevalue("bins")
        request.getfixturevalue("few_columns")
    metrics = [*NEAREST, "macro:map@r", "map", "auc", "opis", "eer"]
    sets, options = GIVEN[kind]()
    options = {"metrics": metrics, "block_rows": 13, "neighbours": 4, "calibration_far": (0.05, 0.3), **options}
    assert_identical(evaluate(*sets, **options), evaluate_in_pieces(*sets, **options))


@pytest.mark.parametrize(
    "protocol", [{}, {"by": "mean", "enrolled": 3}, {"by": "mean"}, {"by": "nearest", "k": 3}], ids=str
)
@pytest.mark.parametrize("with_cohort", [False, True])
def test_identification(protocol, with_cohort):
    others = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
    options = {"metrics": ["fnir@fpir=1e-1", "rank1@fpir=1e-1"], "identification": protocol, "block_rows": 13}
    options["cohort"] = Cohort(others) if with_cohort else None
    assert_identical(evaluate(*space(), **options), evaluate_in_pieces(*space(), **options))


@pytest.mark.parametrize("geometry", ["cosine", "euclidean"])
def test_the_number_of_threads_changes_no_bit(geometry, threads, monkeypatch):
    monkeypatch.setattr(pair_distances, "MAX_KEPT_PAIRS", 0)
    embeddings, labels = space(400, dimension=33)
    options = {"metrics": ["uniformity", "auc", "opis", "eer", "map@r"], "geometry": geometry, "block_rows": 7}
    alone = evaluate(embeddings, labels, **options)
    threads(2)
    assert_identical(alone, evaluate(embeddings, labels, **options))


class Largest(Collector):
    """Reads tiles, and has no `merge`."""

    def collect(self, tile):
        self.largest = tile.similarity.max()


def test_a_collector_that_cannot_merge_is_named():
    embeddings, _ = space()
    collector = Largest(None, {}, ())
    scan(SimilarityMatrix(embeddings), [collector], block_rows=20)
    with pytest.raises(EquimetricError, match="Largest cannot be computed in pieces; leave it out, or use one process"):
        scan(SimilarityMatrix(embeddings), [collector], block_rows=20, run=read_in_copies)


class Strips(Collector):
    accepts_columns = True

    def accepts_strips(self):
        return True


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("block_rows", [3, 16, 64])
@pytest.mark.usefixtures("few_columns")
def test_a_plan_has_every_pair_once_and_its_ranges_are_alike(block_rows, halves):
    matrix = SimilarityMatrix(torch.randn(500, 3), geometry="dot" if halves else "euclidean")
    found = plan_bands(matrix, [Strips(None, {}, ())], block_rows, coarse=False)
    assert found.symmetric == halves
    seen = torch.zeros(500, 500, dtype=torch.int64)
    for band, rows in enumerate(found.bands):
        for block in found.blocks(band):
            seen[rows, block] += 1
            assert block.stop - block.start <= 64
    assert found.count_tiles(range(len(found.bands))) == sum(
        len(found.blocks(band)) for band in range(len(found.bands))
    )
    both = seen + seen.T.tril(-1) if halves else seen
    assert bool((both.tril() if halves else both)[torch.ones(500, 500).tril().bool()].ge(1).all())
    if not halves:
        assert bool((seen == 1).all())
    for count in (1, 2, 5, 1000):
        ranges = found.split_bands(count)
        assert [band for band_range in ranges for band in band_range] == list(range(len(found.bands)))
        assert len(ranges) <= count
        if count < 10:
            pairs = [sum(int(seen[found.bands[band]].sum()) for band in band_range) for band_range in ranges]
            assert max(pairs) - min(pairs) <= 2.1 * block_rows * 500


def test_ranges_of_a_plan_with_fewer_bands_than_wanted():
    few = ScanPlan(tuple(slices(10, 4)), 10, 10)
    assert few.split_bands(8) == [range(0, 1), range(1, 2), range(2, 3)]
    assert odd_ranges(7) == [range(0, 1), range(1, 3), range(3, 6), range(6, 7)]


numbers = st.lists(st.floats(0, 1000, allow_subnormal=False), min_size=1, max_size=30)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(numbers, st.randoms(use_true_random=False))
def test_exact_sums_do_not_depend_on_order_or_grouping(terms, random):
    def total(groups):
        merged = ExactSums(2, torch.device("cpu"))
        for group in groups:
            sums = ExactSums(2, torch.device("cpu"))
            for term in group:
                sums.add(torch.tensor([1]), torch.tensor([term], dtype=torch.float64))
            merged.merge(sums.partial())
        return merged.total()

    shuffled = random.sample(terms, len(terms))
    cut = random.randrange(len(terms) + 1)
    one, other = total([terms]), total([shuffled[:cut], shuffled[cut:]])
    assert torch.equal(one, other)
    assert float(one[1]) == pytest.approx(sum(terms), rel=1e-12, abs=1e-15)
    assert float(one[0]) == 0
