"""Samples with several labels each, against definitions in plain loops: a pair is positive if it shares a label."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import Cohort, evaluate, list_metrics, threshold_consistency
from equimetric.evaluation.engine import binned_pairs
from equimetric.evaluation.engine import pair_distances as distances_module
from equimetric.evaluation.engine.binned_label_sets import BinnedLabelSets
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.evaluation.metrics.roc import area_under_roc, equal_error_rate
from equimetric.seeding import derive_seed

RANKED = ["recall@1", "recall@3", "precision@1", "precision@3", "map@3", "r_precision", "map@r", "map", "mrr"]
PAIRED = ["auc", "eer", "tar@far=0.1"]


class Tags(frozenset):
    """Equal if a label is shared: what the oracle of rankings compares."""

    __hash__ = frozenset.__hash__

    def __eq__(self, other):
        return bool(self & other)


def space(rows=40, labels=5, seed=0, dimension=3, share=0.3):
    """Whole numbers in few dimensions, so that many similarities are equal; some samples have no label."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randint(-2, 3, (rows, dimension), generator=generator).double()
    return embeddings, torch.rand(rows, labels, generator=generator) < share


def tags(matrix):
    return [Tags(row.nonzero().flatten().tolist()) for row in matrix]


def rank(queries, gallery, itself, compared=lambda query, item: True):
    """For each query the gallery indices by falling inner product, then rising index."""
    similarity = (queries @ gallery.T).tolist()
    return [
        sorted(
            (j for j in range(len(row)) if not (itself and i == j) and compared(i, j)),
            key=lambda j, row=row: (-row[j], j),
        )
        for i, row in enumerate(similarity)
    ]


@pytest.mark.parametrize("block_rows", [None, 1, 7])
@pytest.mark.parametrize("seed", range(3))
def test_rankings_follow_the_definition(seed, block_rows, definition):
    embeddings, labels = space(seed=seed)
    rankings = rank(embeddings, embeddings, True)
    expected = definition(rankings, tags(labels), tags(labels), (1, 3))
    result = evaluate(embeddings, labels, metrics=RANKED, geometry="dot", block_rows=block_rows, neighbours=4)
    assert dict(result) == pytest.approx({name: expected[name] for name in RANKED}, rel=1e-14)
    assert result.neighbours.tolist() == [ranking[:4] for ranking in rankings]
    found = tags(labels)
    lone = sum(not any(found[i] == found[j] for j in range(40) if i != j) for i in range(40))
    assert result.lone == lone


@pytest.mark.parametrize("labels", [5, 130])
def test_a_gallery_ids_and_many_labels(labels, definition):
    embeddings, matrix = space(70, labels, share=1.5 / labels)
    ids = torch.arange(70) // 2
    found = tags(matrix)
    rankings = rank(embeddings[:25], embeddings[25:], False, lambda i, j: ids[i] != ids[25 + j])
    expected = definition(rankings, found[:25], found[25:], (1, 3))
    given = embeddings[:25], matrix[:25].int(), embeddings[25:].numpy(), matrix[25:].numpy()
    result = evaluate(*given, metrics=RANKED, geometry="dot", query_ids=ids[:25], gallery_ids=ids[25:], block_rows=9)
    assert dict(result) == pytest.approx({name: expected[name] for name in RANKED}, rel=1e-14)


def test_within_parents_samples_of_one_label_may_have_two_parents(definition):
    embeddings, labels = space(60)
    parents = torch.arange(60) % 3
    rankings = rank(embeddings, embeddings, True, lambda i, j: parents[i] == parents[j])
    expected = definition(rankings, tags(labels), tags(labels), (1, 3))
    result = evaluate(embeddings, labels, metrics=RANKED, geometry="dot", parents=parents, query_ids=torch.arange(60))
    assert dict(result) == pytest.approx({name: expected[name] for name in RANKED}, rel=1e-14)


def test_sets_of_strings_are_the_same_labels():
    embeddings, labels = space()
    names = [{f"label {c}" for c in one} for one in tags(labels)]
    by_matrix, by_sets = (evaluate(embeddings, some, metrics=RANKED + PAIRED) for some in (labels, names))
    assert by_matrix == by_sets
    assert by_sets.class_labels == tuple(f"label {c}" for c in range(5))
    numbers = [{10 * c for c in one} for one in tags(labels)]
    assert evaluate(embeddings, numbers, metrics="map").class_labels == (0, 10, 20, 30, 40)


def test_one_label_each_is_the_same_as_classes():
    generator = torch.Generator().manual_seed(5)
    labels = torch.arange(6).repeat(9)
    embeddings = torch.randn(6, 4, generator=generator)[labels] + 0.8 * torch.randn(54, 4, generator=generator)
    supported = [name for family in list_metrics() if family.multi_label for name in family.examples]
    averaged = [family for family in list_metrics() if family.macro and family.multi_label]
    supported += [f"macro:{name}" for family in averaged for name in family.examples]
    one_hot = torch.nn.functional.one_hot(labels)
    for options in ({}, {"lone": "zero"}, {"overlap": "jaccard"}):
        single, multi = (evaluate(embeddings, some, metrics=supported, **options) for some in (labels, one_hot))
        assert single == multi
        for label in range(6):
            assert multi.per_class[label] == pytest.approx(single.per_class[label], nan_ok=True)
    for name in ("recall@1", "opis", "macro:tar@far=1e-3"):
        assert multi.interval(name).standard_error == pytest.approx(single.interval(name).standard_error)


@pytest.mark.parametrize("name", ["nmi", "ami", "f1", "pi_ratio", "alignment"])
def test_metrics_of_a_partition_are_refused(name):
    embeddings, labels = space()
    with pytest.raises(EquimetricError, match=rf"'{name}' needs classes that share no sample; leave it out"):
        evaluate(embeddings + 0.1, labels, metrics=["map", name])


def pairs_by_definition(queries, query_tags, gallery=None, gallery_tags=None):
    """(labels, labels, distance) of all pairs."""
    if gallery is None:
        indices = combinations(range(len(queries)), 2)
        gallery, gallery_tags = queries, query_tags
    else:
        indices = product(range(len(queries)), range(len(gallery)))
    unit, other = torch.nn.functional.normalize(queries), torch.nn.functional.normalize(gallery)
    return [(query_tags[i], gallery_tags[j], float((unit[i] - other[j]).norm())) for i, j in indices]


@pytest.mark.parametrize("with_gallery", [False, True])
def test_pairs_are_counted_for_every_label_they_belong_to(with_gallery):
    embeddings, labels = space(50, dimension=6)
    embeddings = embeddings + 0.1
    given = (embeddings[:20], labels[:20], embeddings[20:], labels[20:]) if with_gallery else (embeddings, labels)
    found = pair_distances(prepare_sets(*given, multi_label=True), block_rows=7)
    of = [tags(part) if part.dtype == torch.bool else part for part in given]
    pairs = pairs_by_definition(*of)
    thresholds = np.quantile([d for *_, d in pairs], [0.1, 0.5, 0.9]) + 1e-9
    counts, of_labels = found.count_accepted(thresholds), found.count_accepted_by_class(thresholds)
    for place, threshold in enumerate(thresholds):
        within = [(frozenset(a), frozenset(b)) for a, b, d in pairs if d <= threshold]
        assert counts.positive[place] == sum(bool(a & b) for a, b in within)
        assert counts.negative[place] == sum(not a & b for a, b in within)
        for c in range(5):
            assert of_labels.positive[c, place] == sum(c in a & b for a, b in within)
            assert of_labels.negative[c, place] == sum(not a & b and c in a | b for a, b in within)
    assert found.positives + found.negatives == len(pairs)


@pytest.mark.parametrize("keeps_positives", [True, False])
@pytest.mark.parametrize("with_gallery", [False, True])
@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "hamming"])
def test_bins_agree_with_every_pair(geometry, with_gallery, keeps_positives, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    labels = torch.rand(500, 8, generator=generator) < 0.2
    embeddings = labels.float() @ torch.randn(8, 10, generator=generator) + torch.randn(500, 10, generator=generator)
    given = (embeddings[:200], labels[:200], embeddings[200:], labels[200:]) if with_gallery else (embeddings, labels)
    ids = {"query_ids": torch.arange(200), "gallery_ids": torch.arange(300)} if with_gallery else {}
    sets = prepare_sets(*given, geometry=geometry, multi_label=True, **ids)
    exact = pair_distances(sets)
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
    if not keeps_positives:
        monkeypatch.setattr(binned_pairs, "POSITIVES_KEPT", 0)
    binned = pair_distances(sets, block_rows=77)
    assert isinstance(binned.distances, BinnedLabelSets)
    assert (binned.positives, binned.negatives) == (exact.positives, exact.negatives)
    np.testing.assert_array_equal(binned.positives_by_class, exact.positives_by_class)
    np.testing.assert_array_equal(binned.negatives_by_class, exact.negatives_by_class)
    closest = binned.closest_negatives(20).distance
    np.testing.assert_allclose(closest, exact.closest_negatives(20).distance[: len(closest)], atol=1e-5)
    thresholds = exact.negative_distance((np.array([0.001, 0.01, 0.05, 0.3, 0.9]) * exact.negatives).astype(int))
    error = max(binned.possible_error(thresholds), 1e-4)
    for some in ("count_accepted", "count_accepted_by_class"):
        of_exact, of_bins = getattr(exact, some)(thresholds), getattr(binned, some)(thresholds)
        totals = (exact.positives, exact.negatives)
        if some == "count_accepted_by_class":
            totals = exact.positives_by_class[:, None], exact.negatives_by_class[:, None]
        for kind, total in zip(("positive", "negative"), totals, strict=True):
            share = np.abs(getattr(of_exact, kind) - getattr(of_bins, kind)) / total
            # Single pairs may lie on the other side of a threshold by rounding.
            assert (share <= error + 2 / np.asarray(total)).all()
    assert area_under_roc(binned) == pytest.approx(area_under_roc(exact), abs=1e-4)
    assert equal_error_rate(binned)[0] == pytest.approx(equal_error_rate(exact)[0], abs=2e-4)


def test_verification_and_consistency_follow_the_definition():
    _, labels = space(60, seed=3)
    embeddings = torch.randn(60, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    result = evaluate(embeddings, labels, metrics=[*PAIRED, "opis", "frr@distance=0.9", "far@distance=0.9"])
    pairs = [(frozenset(a), frozenset(b), d) for a, b, d in pairs_by_definition(embeddings, tags(labels))]
    positive, negative = ([d for a, b, d in pairs if bool(a & b) is kind] for kind in (True, False))
    closer = [(p < n - 1e-12) + 0.5 * (abs(p - n) <= 1e-12) for p in positive for n in negative]
    assert result["auc"] == pytest.approx(sum(closer) / len(closer), abs=1e-9)
    threshold = sorted(negative)[math.floor(0.1 * len(negative) + 1e-9)]
    assert result["tar@far=0.1"] == pytest.approx(np.mean([d < threshold - 1e-12 for d in positive]))
    for c in range(5):
        of_class = result.per_class[c]
        inside = [d for a, b, d in pairs if c in a & b]
        outside = [d for a, b, d in pairs if not a & b and c in a | b]
        assert of_class["frr@distance=0.9"] == pytest.approx(np.mean([d > 0.9 for d in inside]))
        assert of_class["far@distance=0.9"] == pytest.approx(np.mean([d <= 0.9 for d in outside]))
    consistency = threshold_consistency(embeddings, labels)
    assert consistency.opis == result["opis"]
    curves = []
    for c in range(5):
        inside = np.array([d for a, b, d in pairs if c in a & b])
        outside = np.array([d for a, b, d in pairs if not a & b and c in a | b])
        within = consistency.thresholds[:, None] + 1e-12
        tpr, tnr = (inside <= within).mean(axis=1), 1 - (outside <= within).mean(axis=1)
        curves.append(2 * tpr * tnr / (tpr + tnr))
    np.testing.assert_allclose(consistency.utility, curves, atol=1e-9)


@pytest.mark.parametrize("kept_pairs", [2**23, 0])
def test_consistency_of_one_rate_by_label(kept_pairs, monkeypatch):
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", kept_pairs)
    embeddings, labels = torch.randn(60, 6, generator=torch.Generator().manual_seed(3)), space(60, seed=3)[1]
    result = evaluate(embeddings.double(), labels, metrics=["opis", "opis_far", "opis_frr@40%"])
    pairs = [(frozenset(a), frozenset(b), d) for a, b, d in pairs_by_definition(embeddings.double(), tags(labels))]
    assert result.interval("opis_far", draws=50).classes == 5
    for name, rate in (("opis_far", "far"), ("opis_frr@40%", "frr")):
        found = threshold_consistency(embeddings.double(), labels, rate=rate)
        assert found.noise is None
        assert result[name] == pytest.approx(found.opis if rate == "far" else found.epsilon_opis(0.4), rel=1e-6)
        within = found.thresholds[:, None] + 1e-12
        for c in range(5):
            inside = np.array([d for a, b, d in pairs if c in a & b])
            outside = np.array([d for a, b, d in pairs if not a & b and c in a | b])
            expected = (inside <= within).mean(axis=1) if rate == "frr" else (outside > within).mean(axis=1)
            # In bins, single pairs may lie on the other side of a threshold.
            assert np.abs(found.utility[c] - expected).max() <= (1e-9 if kept_pairs else 2 / len(outside))


def test_small_labels_are_noted_by_their_images():
    _, labels = space(60, seed=3)
    embeddings = torch.randn(60, 6, generator=torch.Generator().manual_seed(3))
    few = torch.cat([labels, torch.eye(6, dtype=torch.bool).repeat_interleave(10, dim=0)], dim=1)
    few[:, 5:] &= (torch.arange(60) % 10 < 4)[:, None]
    assert not evaluate(embeddings, labels, metrics="opis").notes
    (note,) = evaluate(embeddings, few, metrics="opis").notes
    assert "the median class has 4 images" in note


def test_per_class_scores_and_intervals_count_a_query_for_each_label():
    embeddings, labels = space(80, seed=4)
    result = evaluate(embeddings + 0.1, labels, metrics=["map@r", "macro:map@r", "auc", "macro:tar@far=0.1"])
    scores = result.per_query["map@r"]
    for c in range(5):
        assert result.per_class[c]["map@r"] == pytest.approx(float(scores[labels[:, c]].nanmean()))
    assert result["macro:map@r"] == pytest.approx(np.mean([result.per_class[c]["map@r"] for c in range(5)]))
    assert result["macro:tar@far=0.1"] == pytest.approx(
        np.mean([result.per_class[c]["macro:tar@far=0.1"] for c in range(5)])
    )
    # Where every class is drawn once, the query's shares add up to one.
    interval = result.interval("map@r")
    assert interval.low < interval.value < interval.high
    assert interval.classes == 5
    macro = result.interval("macro:map@r")
    assert macro.low < macro.value < macro.high
    with pytest.raises(EquimetricError, match="'auc' is a property of all classes together here"):
        result.interval("auc")
    other = evaluate(embeddings - 0.3, labels, metrics=["map@r", "macro:map@r"])
    comparison = result.compare(other)
    assert comparison["macro:map@r"].difference == result["macro:map@r"] - other["macro:map@r"]
    changed = labels.clone()
    changed[3] = torch.tensor([True, True, False, False, False])
    changed = evaluate(embeddings + 0.1, changed, metrics="map@r")
    with pytest.raises(EquimetricError, match=r"query 3 is of class \[.*\] in one .* and \[0, 1\] in the other"):
        result.compare(changed)
    with pytest.raises(EquimetricError, match="query 0 is of class"):
        result.compare(evaluate(embeddings, torch.arange(80) % 5, metrics="map@r"))


def test_intervals_draw_labels_and_share_a_query_among_its_own():
    embeddings, labels = space(80, seed=4)
    result = evaluate(embeddings + 0.1, labels, metrics="map@r")
    scores = result.per_query["map@r"].tolist()
    drawn = np.random.default_rng(derive_seed(3, "bootstrap")).integers(5, size=(300, 5))
    values = []
    for draw in drawn.tolist():
        total = weight = 0.0
        for score, row in zip(scores, labels.tolist(), strict=True):
            times = sum(draw.count(c) for c in range(5) if row[c]) / max(1, sum(row))
            if not math.isnan(score):
                total, weight = total + times * score, weight + times
        values.append(total / weight)
    interval = result.interval("map@r", draws=300, seed=3)
    assert interval.standard_error == pytest.approx(np.std(values, ddof=1))
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])))


def test_lone_queries_and_those_without_labels_count_as_zero_on_request():
    embeddings, labels = space(30, seed=2)
    labels[:4] = False
    excluded, zero = (evaluate(embeddings + 0.1, labels, metrics="map", lone=lone) for lone in ("exclude", "zero"))
    assert excluded.lone >= 4
    assert zero["map"] == pytest.approx(excluded["map"] * (30 - zero.lone) / 30)
    assert zero.interval("map").low < zero["map"] < zero.interval("map").high


@pytest.mark.parametrize("prefilter", ["none", "bfloat16"])
def test_tiles_threads_order_and_precision_change_nothing(prefilter, threads):
    generator = torch.Generator().manual_seed(3)
    embeddings = torch.randn(150, 6, generator=generator)
    embeddings[::5] = embeddings[1::5]
    labels = torch.rand(150, 7, generator=generator) < 0.25
    names = ["recall@2", "map@4", "r_precision", "map@r", "ndcg@5"]
    options = {"overlap": "jaccard", "neighbours": 3}
    whole = evaluate(embeddings, labels, metrics=names, **options)
    threads(2)
    parts = evaluate(embeddings, labels, metrics=names, block_rows=11, prefilter=prefilter, **options)
    assert parts == whole
    assert torch.equal(parts.neighbours, whole.neighbours)
    columns = torch.randperm(7, generator=generator)
    assert evaluate(embeddings, labels[:, columns], metrics=names, **options) == whole
    distinct = torch.randn(150, 6, generator=generator)
    order = torch.randperm(150, generator=generator)
    plain, permuted = (
        evaluate(distinct[rows], labels[rows], metrics=[*names, "map", "mrr", *PAIRED, "opis"], overlap="jaccard")
        for rows in (slice(None), order)
    )
    assert dict(permuted) == pytest.approx(dict(plain), rel=1e-9)


def test_large_tiles_take_single_pairs_where_few_are_read(monkeypatch):
    from equimetric.evaluation.engine import label_sets

    embeddings, labels = space(60, 9)
    expected = evaluate(embeddings + 0.1, labels, metrics=[*RANKED, "ndcg@4"], overlap="jaccard")
    for few, at_a_time in ((1, 50), (100, 1), (1, 1)):
        monkeypatch.setattr(label_sets, "FEW_COLUMNS", few)
        monkeypatch.setattr(label_sets, "ENTRY_CHUNK_SIZE", at_a_time)
        found = evaluate(embeddings + 0.1, labels, metrics=[*RANKED, "ndcg@4"], overlap="jaccard")
        assert found == expected


def test_a_cohort_normalises_them_alike():
    embeddings, labels = space(40)
    cohort = Cohort(torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).double(), strength=0.0)
    plain, normalised = (evaluate(embeddings + 0.1, labels, metrics=["map@r"], cohort=some) for some in (None, cohort))
    assert normalised["map@r"] == pytest.approx(plain["map@r"])


def test_the_table_of_queries_lists_their_labels():
    pytest.importorskip("pandas")
    embeddings, _ = space(6)
    labels = [{"a"}, {"a", "b"}, set(), {"b"}, {"b"}, {"a", "c"}]
    table = evaluate(embeddings + 0.1, labels, metrics="map").to_dataframe()
    assert table["label"].tolist() == [["a"], ["a", "b"], [], ["b"], ["b"], ["a", "c"]]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.eye(6, dtype=torch.bool), "no query has a gallery item of its class"),
        (torch.ones(5, 2, dtype=torch.bool), "there are 6 embeddings but 5 rows of labels"),
        (torch.tensor([[0, 2]] * 6), "labels give a list to each sample; give one label, a multi-hot row"),
        ([["a", "b"], ["a"], ["b"], ["b"], ["c"], ["c"]], "labels give a list to each sample"),
        ([{"a"}, "a", {"b"}, {"b"}, {"c"}, {"c"}], "labels mix sets with other types such as 'a'"),
        ([{"a"}, {1}, {"a"}, {1}, {"a"}, {1}], "the labels in the sets must be all integers or all strings"),
        ([set()] * 6, "no sample has a label"),
    ],
)
def test_bad_labels_are_named(labels, message):
    with pytest.raises(EquimetricError, match=message):
        evaluate(torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), labels)


def test_labels_of_the_gallery_must_fit():
    embeddings, labels = space(20)
    for gallery_labels, message in (
        (torch.arange(10), "labels are multi-hot or sets, but gallery_labels are not"),
        (labels[10:, :3], "labels have 5 columns and gallery_labels 3"),
        ([{1}] * 10, "both be multi-hot or both be sets"),
    ):
        with pytest.raises(EquimetricError, match=message):
            evaluate(embeddings[:10], labels[:10], embeddings[10:], gallery_labels)


def test_what_needs_one_class_for_each_sample_says_so():
    from equimetric.calibration import calibrate

    embeddings, labels = space(40)
    with pytest.raises(EquimetricError, match="the consistency of data sets needs one class for every sample"):
        evaluate(embeddings + 0.1, labels, metrics="opis", members=torch.arange(40) % 2)
    for name in ("opis_noise", "opis_far_noise", "threshold_gap@far=0.1"):
        with pytest.raises(EquimetricError, match=f"'{name}' needs classes that share no sample"):
            evaluate(embeddings + 0.1, labels, metrics=["opis", name])
    one_each = pytest.raises(EquimetricError, match=r"labels have shape \(40, 5\); they must be one-dimensional")
    with one_each:
        calibrate(embeddings, labels, far=0.1)
    with one_each:
        threshold_consistency(embeddings, labels, sample=9)


def test_a_cohort_with_labels_needs_single_labels():
    embeddings = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.eye(3, dtype=torch.int64).repeat(4, 1)
    cohort = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
    with pytest.raises(EquimetricError, match="a cohort with labels needs one class for every sample"):
        evaluate(embeddings, labels, cohort=Cohort(cohort, torch.arange(30) + 5), metrics="recall@1")
    assert 0 <= evaluate(embeddings, labels, cohort=Cohort(cohort), metrics="recall@1")["recall@1"] <= 1
