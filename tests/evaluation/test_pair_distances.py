"""Counts of pairs within thresholds, from all pairs and from bins."""

import numpy as np
import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine import binned_pairs
from equimetric.evaluation.engine import pair_distances as distances_module
from equimetric.evaluation.engine.all_pairs import AllPairs
from equimetric.evaluation.engine.binned_pairs import BinnedPairs
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import PairDistances, pair_distances
from equimetric.evaluation.metrics.roc import area_under_roc, equal_error_rate, tar_at_far


def clusters(samples=600, classes=15, dimension=8, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, dimension, generator=generator, dtype=dtype)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    return centres[labels] + torch.randn(samples, dimension, generator=generator, dtype=dtype), labels


def by_definition(sets, distance):
    """(class, class, distance) of all pairs, in two loops."""
    alone = sets.gallery is None
    pairs = []
    for i, first in enumerate(sets.query_classes.tolist()):
        for j, second in enumerate(sets.gallery_classes.tolist()):
            if not alone or i < j:
                pairs.append((first, second, distance(sets.queries[i], sets.gallery_vectors[j])))
    return pairs


DISTANCES = {
    "cosine": lambda a, b: float((a - b).norm()),
    "euclidean": lambda a, b: float((a - b).norm()),
    "dot": lambda a, b: -float(a @ b),
    "hamming": lambda a, b: float((a != b).sum()),
}


@pytest.mark.parametrize("with_gallery", [False, True])
@pytest.mark.parametrize("geometry", DISTANCES)
def test_counts_follow_the_definition(geometry, with_gallery):
    embeddings, labels = clusters(60, 4)
    given = (embeddings[:25], labels[:25], embeddings[25:], labels[25:]) if with_gallery else (embeddings, labels)
    sets = prepare_sets(*given, geometry=geometry)
    pairs = by_definition(sets, DISTANCES[geometry])
    thresholds = np.quantile([d for *_, d in pairs], [0.05, 0.3, 0.6, 0.95]) + 1e-9
    found = pair_distances(sets, block_rows=7)
    counts, of_classes = found.count_accepted(thresholds), found.count_accepted_by_class(thresholds)
    for place, threshold in enumerate(thresholds):
        within = [(a, b) for a, b, d in pairs if d <= threshold]
        assert counts.positive[place] == sum(a == b for a, b in within)
        assert counts.negative[place] == sum(a != b for a, b in within)
        for c in range(4):
            assert of_classes.positive[c, place] == sum(a == b == c for a, b in within)
            assert of_classes.negative[c, place] == sum((a == c) != (b == c) for a, b in within)
    assert found.positives_by_class.sum() == found.positives == sum(a == b for a, b, _ in pairs)
    assert found.negatives_by_class.sum() == 2 * found.negatives
    negative = sorted(d for a, b, d in pairs if a != b)
    np.testing.assert_allclose(found.negative_distance(np.arange(len(negative))), negative, atol=1e-7)


@pytest.mark.parametrize("keeps_positives", [True, False])
@pytest.mark.parametrize("with_gallery", [False, True])
@pytest.mark.parametrize("geometry", DISTANCES)
def test_bins_agree_with_every_pair(geometry, with_gallery, keeps_positives, monkeypatch):
    embeddings, labels = clusters(dtype=torch.float32)
    given = (embeddings[:200], labels[:200], embeddings[200:], labels[200:]) if with_gallery else (embeddings, labels)
    sets = prepare_sets(*given, geometry=geometry)
    exact = pair_distances(sets)
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
    if not keeps_positives:
        monkeypatch.setattr(binned_pairs, "POSITIVES_KEPT", 0)
    binned = pair_distances(sets, block_rows=77)
    assert isinstance(exact.distances, AllPairs)
    assert isinstance(binned.distances, BinnedPairs)
    assert exact.is_exact
    assert not binned.is_exact
    assert (binned.positives, binned.negatives) == (exact.positives, exact.negatives)
    assert (binned.positives_by_class == exact.positives_by_class).all()
    assert (binned.negatives_by_class == exact.negatives_by_class).all()

    thresholds = np.unique(exact.negative_distance(np.linspace(0, exact.negatives - 1, 41).astype(int)))
    error = binned.possible_error(thresholds)
    ours, theirs = binned.count_accepted_by_class(thresholds), exact.count_accepted_by_class(thresholds)
    rounding = 1 / exact.negatives_by_class.min()
    assert (abs(ours.negative - theirs.negative) / exact.negatives_by_class[:, None]).max() <= error + rounding
    assert (abs(ours.positive - theirs.positive) / exact.positives_by_class[:, None]).max() <= error + 1e-12
    if geometry == "hamming":
        assert error == 0
    assert area_under_roc(binned) == pytest.approx(area_under_roc(exact), abs=1e-5)
    assert equal_error_rate(binned)[0] == pytest.approx(equal_error_rate(exact)[0], abs=5e-4)
    if keeps_positives:
        # The closest pairs are kept singly, so small false accept rates are exact.
        assert binned.exact_far > 1e-3
        assert tar_at_far(binned, 1e-3).threshold == pytest.approx(tar_at_far(exact, 1e-3).threshold, rel=1e-5)
        assert tar_at_far(binned, 1e-3).tar == tar_at_far(exact, 1e-3).tar


def test_ranges_of_classes_and_closest_pairs_agree(monkeypatch):
    embeddings, labels = clusters()
    sets = prepare_sets(embeddings, labels)
    exact = pair_distances(sets)
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
    for found in (exact, pair_distances(sets)):
        whole = found.count_accepted_by_class([0.3, 0.9])
        part = found.count_accepted_by_class([0.3, 0.9], slice(4, 9))
        assert (part.negative == whole.negative[4:9]).all()
        assert (part.positive == whole.positive[4:9]).all()
        closest = found.closest_negatives(100)
        np.testing.assert_allclose(closest.distance, exact.negative_distance(np.arange(100)), atol=1e-12)
        assert (closest.first != closest.second).all()


@pytest.mark.parametrize("every_pair", [2**23, 0])
def test_duplicates_are_pairs_and_a_sample_is_not_paired_with_itself(every_pair, monkeypatch):
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", every_pair)
    embeddings, labels = clusters(100, 5)
    embeddings[1], labels[1] = embeddings[0], labels[0]
    embeddings[2], labels[2] = embeddings[0], (labels[0] + 1) % 5
    found = pair_distances(prepare_sets(embeddings, labels))
    assert found.count_accepted(1e-6).positive == 1
    assert found.count_accepted(1e-6).negative == 2
    ids = np.arange(100)
    ids[1] = ids[2] = 0
    without = pair_distances(prepare_sets(embeddings, labels, query_ids=ids))
    assert without.count_accepted(1e-6).positive == without.count_accepted(1e-6).negative == 0
    assert (without.positives, without.negatives) == (found.positives - 1, found.negatives - 2)


@pytest.mark.parametrize("every_pair", [2**23, 0])
@pytest.mark.parametrize("keeps_positives", [True, False])
def test_half_the_matrix_counts_the_same_pairs(every_pair, keeps_positives, monkeypatch):
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", every_pair)
    if not keeps_positives:
        monkeypatch.setattr(binned_pairs, "POSITIVES_KEPT", 0)
    embeddings, labels = clusters(400, 9)
    sets = prepare_sets(embeddings, labels, query_ids=np.arange(400) % 390)
    once = pair_distances(sets, block_rows=48)
    monkeypatch.setattr(PairDistances, "accepts_strips", lambda self: False)
    both = pair_distances(sets, block_rows=31)
    thresholds = np.linspace(0.1, 1.95, 60)
    for ours, theirs in (
        (once.count_accepted_by_class(thresholds), both.count_accepted_by_class(thresholds)),
        (once.count_accepted(thresholds), both.count_accepted(thresholds)),
    ):
        np.testing.assert_allclose(ours.negative, theirs.negative, rtol=1e-9)
        np.testing.assert_allclose(ours.positive, theirs.positive, rtol=1e-9)
    np.testing.assert_allclose(once.closest_negatives(50).distance, both.closest_negatives(50).distance, atol=1e-12)


def test_counts_within_the_range_do_not_need_the_rest(monkeypatch):
    embeddings, labels = clusters(dtype=torch.float32)
    sets = prepare_sets(embeddings, labels)
    exact = pair_distances(sets)
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
    found = pair_distances(sets, range_only=True, block_rows=100)
    assert (found.negatives_by_class == exact.negatives_by_class).all()
    thresholds = exact.negative_distance((np.linspace(0.01, 0.1, 30) * exact.negatives).astype(int))
    np.testing.assert_allclose(
        found.negative_distance((np.linspace(0.01, 0.1, 30) * exact.negatives).astype(int)), thresholds, atol=1e-4
    )
    ours, theirs = found.count_accepted_by_class(thresholds), exact.count_accepted_by_class(thresholds)
    assert found.possible_error(thresholds) < 2e-3
    assert (abs(ours.negative - theirs.negative) / exact.negatives_by_class[:, None]).max() < 2e-3
    # Farther thresholds lie in the one bin of pairs that are not read.
    assert found.possible_error(exact.negative_distance([exact.negatives // 2])) > 0.5


def test_tile_size_and_order_change_nothing():
    embeddings, labels = clusters(300, 6)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    thresholds = np.linspace(0.2, 1.9, 30)
    one = pair_distances(prepare_sets(embeddings, labels)).count_accepted_by_class(thresholds)
    other = pair_distances(prepare_sets(embeddings[order], labels[order]), block_rows=11).count_accepted_by_class(
        thresholds
    )
    assert (one.positive == other.positive).all()
    assert (one.negative == other.negative).all()


@pytest.mark.parametrize("every_pair", [2**23, 0])
def test_without_negative_pairs_there_is_no_threshold(every_pair, monkeypatch):
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", every_pair)
    given = (torch.eye(4)[:2], [0, 1], torch.eye(4)[2:], [0, 1])
    crossed = {"query_ids": [5, 6], "gallery_ids": [6, 5]}
    with pytest.raises(EquimetricError, match="no negative pair"):
        pair_distances(prepare_sets(*given, **crossed))
