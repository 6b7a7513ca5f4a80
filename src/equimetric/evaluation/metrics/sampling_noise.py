"""What sampling alone contributes to OPIS: how much the utility of a class would vary with the images drawn.

Leaving out one image k of class i, with all its pairs, gives the jackknife variance of its utility at a threshold d,

    v_i(d) = (n_i − 1)/n_i Σ_k (U_i^(−k)(d) − mean_k U_i^(−k)(d))².

Two corrections, each to first order in the rates, make its mean over classes and thresholds what OPIS would be if the
classes did not differ. All expectations are over different images, estimated without bias from counts of pairs:
h_kl ∈ {0, 1} says whether a pair is accepted, so Σ h² = Σ h.

* A positive pair belongs to two images of the class, so v_i counts twice what no single image explains (Efron and
  Stein: The jackknife estimate of variance, 1981). With the variance of that part, σ² = E[h₁₂] − 2 E[h₁₂h₁₃] +
  E[h₁₂h₃₄], v_i falls by (∂U/∂TPR)² · 2σ² / ((n − 1)(n − 2)). A class of three has no two disjoint pairs and keeps v_i.
* A negative pair has an image j of another class c. With the share a_ji of class i that j accepts, v_i grows by
  (∂U/∂TNR)² · Σ_c n_c var_j a_ji n_i² / N_i² for the N_i negative pairs of the class, averaged over classes.
  var_j a_ji = E[h_jl h_jl′] − E[h_jl h_j′l′] comes from the images of whole classes, at most 512, drawn at random.

Without the corrections, noise/OPIS of classes that do not differ is 1.2 to 1.6 at 10 and 20 images per class where
TPR matters, and 0.6 for FAR alone; with them it is close to 1.

Rows that are one image (equal ids) are left out together; the corrections take them as different images.

Of whole data sets, classes are left out instead of images, which are not independent there; nothing is corrected.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.pair_counts import AcceptedPairs, PairCounts
from equimetric.evaluation.engine.pair_distances import PairDistances
from equimetric.evaluation.metrics.utility_curves import (
    Noise,
    Rate,
    average_over_range,
    rate_utility,
    utility_gradients,
)

__all__ = ["class_noise", "data_set_noise"]

MIN_UNITS = 3
"""Images of a class, or classes of a data set, that take part in the noise."""
ENTRY_CHUNK_SIZE = 2**22


@dataclass(frozen=True)
class _Units:
    """Units to leave out one at a time, member by member: images of classes, or classes of data sets.

    accepted  (K, G) pairs of each unit within every threshold; pairs (K,) all of them
    start     (T,) first unit of every member
    shared    how many units of a member a positive and a negative pair belongs to
    """

    accepted: PairCounts
    pairs: PairCounts
    start: Integers
    shared: tuple[int, int]

    @property
    def sizes(self) -> Integers:
        return np.diff(np.append(self.start, len(self.pairs.positive)))

    def total(self, counts: Floats) -> Floats:
        """(T, …) sums over the units of every member."""
        return np.add.reduceat(counts, self.start, axis=0)

    def leave_one_out_share(self, accepted: Floats, pairs: Floats, shared: int) -> Floats:
        """(K, G) accepted share of the pairs that remain when a unit is left out."""
        remaining = np.repeat(self.total(accepted) / shared, self.sizes, axis=0) - accepted
        return remaining / (np.repeat(self.total(pairs) / shared, self.sizes) - pairs)[:, None]

    def jackknife(self, utility: Floats) -> Floats:
        """(T, G) jackknife variance from the utility (K, G) without each unit."""
        sizes = self.sizes[:, None]
        centred = utility - np.repeat(self.total(utility) / sizes, self.sizes, axis=0)
        return self.total(centred**2) * (sizes - 1) / sizes


def class_noise(
    distances: PairDistances, thresholds: Floats, rates: Sequence[Rate], utility_c: float, *, required: bool = False
) -> dict[Rate, Noise]:
    """The noise of every class of at least three images, from the accepted pairs of its images.

    Returns an empty dict if it cannot be measured, or raises if `required`.
    """
    classes = _eligible_classes(distances) if distances.knows_images else np.empty(0, np.int64)
    if len(classes) < 2:
        return _raise_too_few(len(classes), "classes", "images") if required else {}
    image_thresholds = distances.image_thresholds(thresholds)
    variance_by_others = _variance_by_others(
        distances, len(image_thresholds), distances.list_accepted_pairs(image_thresholds)
    )
    variance: dict[Rate, list[Floats]] = {rate: [] for rate in rates}
    for units in _images_of(distances, classes, image_thresholds):
        for rate in rates:
            variance[rate].append(
                _corrected_variance(units, rate, utility_c, distances.images.orders, variance_by_others)
            )
    return {rate: _average(np.concatenate(blocks), image_thresholds, classes) for rate, blocks in variance.items()}


def data_set_noise(
    distances_by_set: Sequence[PairDistances],
    thresholds: Floats,
    rates: Sequence[Rate],
    utility_c: float,
    *,
    required: bool = False,
) -> dict[Rate, Noise]:
    """The noise of every data set of at least three classes, from the accepted pairs of its classes."""
    variance: dict[Rate, list[Floats]] = {rate: [] for rate in rates}
    start, members = np.zeros(1, np.int64), []
    for index, distances in enumerate(distances_by_set):
        by_class = distances.positives_by_class, distances.negatives_by_class
        pairs = PairCounts(*(counts.astype(np.float64) for counts in by_class))
        if distances.classes < MIN_UNITS or not _can_leave_out(pairs, start, (1, 2)).all():
            continue
        members.append(index)
        units = _Units(distances.count_accepted_by_class(thresholds), pairs, start, (1, 2))
        for rate in rates:
            variance[rate].append(units.jackknife(_leave_one_out_utility(units, rate, utility_c)))
    if len(members) < 2:
        return _raise_too_few(len(members), "data sets", "classes") if required else {}
    return {rate: _average(np.concatenate(blocks), thresholds, np.array(members)) for rate, blocks in variance.items()}


def _raise_too_few(count: int, members: str, units: str) -> NoReturn:
    raise EquimetricError(
        f"sampling noise needs two {members} of at least {MIN_UNITS} {units}, each of which can be left out; "
        f"there {'is' if count == 1 else 'are'} {count}"
    )


def _can_leave_out(pairs: PairCounts, start: Integers, shared: tuple[int, int]) -> NDArray[np.bool_]:
    """(T,) whether pairs of both kinds remain without any one of the units of a member."""
    enough = np.ones(len(start), bool)
    for counts, shared_pairs in zip((pairs.positive, pairs.negative), shared, strict=True):
        enough &= np.maximum.reduceat(counts, start) < np.add.reduceat(counts, start) / shared_pairs
    return enough


def _eligible_classes(distances: PairDistances) -> Integers:
    """Classes of at least three images that keep pairs of both kinds without any one of them."""
    start = distances.images.start
    sizes = np.diff(start)
    present = np.flatnonzero(sizes)
    enough = _can_leave_out(distances.pairs_by_image, start[present], (2, 1))
    return present[enough & (sizes[present] >= MIN_UNITS)]


def _images_of(distances: PairDistances, classes: Integers, thresholds: Floats) -> Iterator[_Units]:
    """The images of these classes, a few classes at a time."""
    start, pairs = distances.images.start, distances.pairs_by_image
    sizes = np.diff(start)[classes]
    block = np.cumsum(sizes) // max(1, ENTRY_CHUNK_SIZE // len(thresholds))
    for block_index in np.unique(block):
        block_classes, block_sizes = classes[block == block_index], sizes[block == block_index]
        first, last = start[block_classes[0]], start[block_classes[-1] + 1]
        counts = distances.count_accepted_by_image(thresholds, slice(first, last))
        begin = np.cumsum(block_sizes) - block_sizes
        rows = np.arange(block_sizes.sum()) + np.repeat(start[block_classes] - first - begin, block_sizes)
        yield _Units(
            PairCounts(counts.positive[rows], counts.negative[rows]),
            PairCounts(pairs.positive[first + rows], pairs.negative[first + rows]),
            begin,
            (2, 1),
        )


def _leave_one_out_utility(units: _Units, rate: Rate, c: float) -> Floats:
    accepted, pairs, shared = units.accepted, units.pairs, units.shared
    tpr = 1.0 if rate == "far" else units.leave_one_out_share(accepted.positive, pairs.positive, shared[0])
    far = 0.0 if rate == "frr" else units.leave_one_out_share(accepted.negative, pairs.negative, shared[1])
    return rate_utility(rate, np.asarray(tpr), 1 - np.asarray(far), c)


def _corrected_variance(units: _Units, rate: Rate, c: float, orders: int, variance_by_others: Floats) -> Floats:
    """(T, G) jackknife variance, less what it counts twice, plus that of other classes' images."""
    variance = units.jackknife(_leave_one_out_utility(units, rate, c))
    tpr = units.total(units.accepted.positive) / units.total(units.pairs.positive)[:, None]
    tnr = 1 - units.total(units.accepted.negative) / units.total(units.pairs.negative)[:, None]
    by_tpr, by_tnr = utility_gradients(rate, tpr, tnr, c)
    images = units.sizes[:, None].astype(np.float64)
    counted_twice = 2 * _pair_variance(units, orders) / ((images - 1) * (images - 2))
    return variance - by_tpr**2 * counted_twice + by_tnr**2 * variance_by_others


def _pair_variance(units: _Units, orders: int) -> Floats:
    """(T, G) σ², by class; 0 where no two pairs are disjoint.

    Of P accepted among M pairs, with p_k among m_k at image k: Σ_k (p_k² − p_k) of P² − P share an image.
    """
    accepted, pairs = units.accepted.positive / orders, (units.pairs.positive / orders)[:, None]

    def sums(counts: Floats) -> tuple[Floats, Floats, Floats]:
        count = units.total(counts) / 2
        sharing = units.total(counts**2 - counts)
        return count, sharing, count**2 - count - sharing

    (count, sharing, disjoint), (all_count, all_sharing, all_disjoint) = sums(accepted), sums(pairs)
    has_disjoint = all_disjoint > 0
    part = count / all_count - 2 * sharing / all_sharing + disjoint / np.where(has_disjoint, all_disjoint, 1)
    return np.where(has_disjoint, part, 0.0)


def _variance_by_others(distances: PairDistances, thresholds: int, pairs: AcceptedPairs) -> Floats:
    """(G,) variance of the false accept rate of a class by the images of other classes, averaged over classes i.

    With b_ji accepted pairs of image j of class c with class i, a_lc of image l of class i with class c, and B_ci of
    both classes, n_c(n_c − 1) n_i(n_i − 1) var_j a_ji = n_c (Σ_j b_ji² − B_ci) − B_ci² + Σ_l a_lc².
    """
    images, classes = distances.images, distances.classes
    query_sizes, item_sizes = (
        np.bincount(images.classes[np.unique(side)], minlength=classes).astype(np.float64)
        for side in (images.query_images, images.item_images)
    )
    negatives = distances.negatives_by_class / images.orders
    drawn = np.bincount(images.classes[distances.drawn_images], minlength=classes)
    first, second = (images.classes[ends].astype(np.int64) for ends in (pairs.first, pairs.second))
    valid = (query_sizes[first] > 1) & (item_sizes[second] > 1)
    first, second, index = first[valid], second[valid], pairs.threshold_index[valid]
    weight = item_sizes[second] / (negatives[second] ** 2 * (query_sizes[first] - 1) * (item_sizes[second] - 1))

    def squares(groups: Integers, weight: Floats) -> Floats:
        return _sum_squares(groups, index, weight, thresholds)

    by_image = squares(pairs.first[valid] * np.int64(classes) + second, query_sizes[first] * weight)
    by_item = squares(pairs.second[valid] * np.int64(classes) + first, weight)
    by_class = squares(first * classes + second, weight)
    diagonal = np.bincount(index, query_sizes[first] * weight, minlength=thresholds).cumsum()
    share = drawn.sum() / max(query_sizes[query_sizes > 1].sum(), 1)
    members = np.count_nonzero((item_sizes > 1) & (negatives > 0))
    return np.asarray((by_image - diagonal - by_class + by_item) / max(share * members, 1e-300))


def _sum_squares(groups: Integers, index: Integers, weight: Floats, thresholds: int) -> Floats:
    """(G,) Σ over groups of weight · m², m the pairs (P,) of a group within the threshold.

    The m-th pair of a group raises its square from (m − 1)² to m².
    """
    order = np.lexsort((index, groups))
    sorted_groups = groups[order]
    begins = np.flatnonzero(np.append(True, sorted_groups[1:] != sorted_groups[:-1])) if len(order) else order
    earlier = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    raised = (2 * earlier + 1) * weight[order]
    return np.bincount(index[order], raised, minlength=thresholds).cumsum()


def _average(variance: Floats, thresholds: Floats, members: Integers) -> Noise:
    return Noise(members, average_over_range(variance, thresholds), thresholds, variance.mean(axis=0))
