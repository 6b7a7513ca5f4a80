"""Metrics as functions of how often each class is drawn: what is resampled in `uncertainty`."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.exact import slices
from equimetric.evaluation.result import Evaluation
from equimetric.evaluation.structure import SPECTRAL_DECAY, spectral_decay

__all__ = ["ClassStatistic", "statistic_of"]

Array = NDArray[np.float64]
DRAWN_AT_A_TIME = 2**22
"""Weights in memory at once, at most."""
OPIS = re.compile(r"opis(?:@(?P<percent>[0-9.]+)%)?")
MEANS_OF_CLASSES = re.compile(r"pi_(?:intra|ratio)(?:_euclidean)?")
MEANS_OF_POSITIVE_PAIRS = re.compile(r"tar@far=.+|frr@distance=.+|alignment(?:@.+)?")


@dataclass(frozen=True)
class ClassStatistic:
    """A metric as a function of class weights: of (B, C) weights the B values; `classes` (C,) are their numbers.

    Where the metric is Σ w_c s_c / Σ w_c n_c, `sums` s and `counts` n are given too.
    """

    classes: NDArray[np.int64]
    of_weights: Callable[[Array], Array]
    sums: Array | None = None
    counts: Array | None = None


def statistic_of(evaluation: Evaluation, name: str) -> ClassStatistic:
    """The metric by what is known of it: the scores of queries, the utility curves, or the scores of classes."""
    statistic = _known_by_class(evaluation, name)
    if len(statistic.classes) < 2:
        raise EquimetricError(f"{name!r} comes from a single class here; resampling classes needs at least two")
    return statistic


def _known_by_class(evaluation: Evaluation, name: str) -> ClassStatistic:
    if name not in evaluation:
        raise unknown_name("metric of this evaluation", name, evaluation)
    if name in evaluation.per_query:
        return _of_queries(evaluation.per_query[name], evaluation.query_classes, len(evaluation.class_labels))
    if name in ROC_VALUES and "class_roc" in evaluation.details:
        return _of_class_curves(evaluation, name)
    if name in PARTITION_VALUES and "clustering" in evaluation.details:
        return _of_partitions(evaluation, name)
    match = OPIS.fullmatch(name)
    if match is not None and "utility" in evaluation.details:
        curves = evaluation.details["utility"]
        share = None if match["percent"] is None else float(match["percent"]) / 100
        return _of_curves(np.asarray(curves["classes"]), curves["utility"], curves["threshold"], share)
    if SPECTRAL_DECAY.fullmatch(name) and "class_spectrum" in evaluation.details:
        return _of_spectrum(evaluation, name)
    if name.startswith("uniformity") and f"{name} of classes" in evaluation.details:
        return _of_potentials(evaluation, name)
    if name.startswith("far@distance") and "class_negatives" in evaluation.details:
        return _of_pairs_between(evaluation.score_per_class[name], evaluation.details["class_negatives"])
    if name.startswith("pi_inter"):
        return _of_pairs_between(evaluation.score_per_class[name], np.ones(len(evaluation.class_labels)))
    if MEANS_OF_CLASSES.fullmatch(name):
        return _of_classes(evaluation.score_per_class[name], np.ones(len(evaluation.class_labels)))
    if MEANS_OF_POSITIVE_PAIRS.fullmatch(name):
        sizes = evaluation.query_classes.bincount(minlength=len(evaluation.class_labels)).double().numpy()
        statistic = _of_classes(evaluation.score_per_class[name], sizes * (sizes - 1))
        # With a gallery, or with images left out, a class has other numbers of pairs, which are not known here.
        if np.isclose(statistic.of_weights(np.ones((1, len(statistic.classes))))[0], evaluation[name], rtol=1e-9):
            return statistic
    raise EquimetricError(
        f"{name!r} is a property of all classes together here, so drawing classes gives no interval for it; "
        "name another metric"
    )


def _of_class_curves(evaluation: Evaluation, name: str) -> ClassStatistic:
    """AUC or EER of FAR = Σ (w_c − ½) n_c(d) / Σ (w_c − ½) n_c and TAR = Σ w_c p_c(d) / Σ w_c p_c, class by class."""
    curves = evaluation.details["class_roc"]
    present = np.flatnonzero(curves["negatives"] > 0)
    positive, negative, positives, negatives = (
        curves[key][present] for key in ("positive", "negative", "positives", "negatives")
    )

    def value(weights: Array) -> Array:
        tar = weights @ positive / np.maximum(weights @ positives, 1)[:, None]
        shares = weights - 0.5
        far = np.clip(shares @ negative / np.maximum(shares @ negatives, 1)[:, None], 0, 1)
        start = np.zeros((len(weights), 1))
        return ROC_VALUES[name](np.hstack([start, far]), np.hstack([start, tar]))

    return _shifted_to(evaluation[name], ClassStatistic(present, value))


def _area(far: Array, tar: Array) -> Array:
    """(B,) area under (B, T) points of curves."""
    return np.asarray((np.diff(far, axis=1) * (tar[:, 1:] + tar[:, :-1]) / 2).sum(axis=1))


def _equal_rates(far: Array, tar: Array) -> Array:
    """(B,) where FAR = FRR, between the last point below and the first above."""
    excess = far + tar - 1
    above = np.argmax(excess >= 0, axis=1)
    rows, below = np.arange(len(far)), np.maximum(above - 1, 0)
    step = excess[rows, above] - excess[rows, below]
    share = -excess[rows, below] / np.where(step > 0, step, 1)
    return np.asarray(far[rows, below] + share * (far[rows, above] - far[rows, below]))


def _of_partitions(evaluation: Evaluation, name: str) -> ClassStatistic:
    """NMI or F1 where a class counts as often as it was drawn, with all its points, in the clusters they formed."""
    from scipy.sparse import csr_array

    classes = evaluation.query_classes.numpy()
    present, member = np.unique(classes, return_inverse=True)
    sizes = np.bincount(member).astype(np.float64)
    tables = []
    for clusters in evaluation.details["clustering"]["clusters"]:
        width = int(clusters.max()) + 1
        place, counts = np.unique(member * width + clusters, return_counts=True)
        cluster = csr_array((counts.astype(np.float64), (np.arange(len(place)), place % width)), (len(place), width))
        tables.append((place // width, counts.astype(np.float64), cluster))

    def value(weights: Array) -> Array:
        values = np.zeros(len(weights))
        for in_class, counts, cluster in tables:
            for rows in slices(len(weights), max(1, DRAWN_AT_A_TIME // len(counts))):
                drawn = weights[rows][:, in_class]
                of_table = PARTITION_VALUES[name](weights[rows] * sizes, drawn @ cluster, drawn * counts)
                values[rows] += of_table / len(tables)
        return values

    return _shifted_to(evaluation[name], ClassStatistic(present, value))


def _pairs(sizes: Array) -> Array:
    """(B,) twice the pairs within parts of (B, ·) sizes."""
    return np.asarray((sizes * (sizes - 1)).sum(axis=1))


def _partition_f1(classes: Array, clusters: Array, both: Array) -> Array:
    """2·both / (in one class + in one cluster), in pairs."""
    return 2 * _pairs(both) / (_pairs(classes) + _pairs(clusters))


def _entropy(sizes: Array) -> Array:
    """(B,) H = log n − Σ m log m / n of parts of (B, ·) sizes m."""
    points = sizes.sum(axis=1)
    return np.asarray(np.log(points) - (sizes * np.log(np.maximum(sizes, 1))).sum(axis=1) / points)


def _partition_nmi(average: Callable[[Array, Array], Array]) -> Callable[[Array, Array, Array], Array]:
    def value(classes: Array, clusters: Array, both: Array) -> Array:
        """I / norm, I = H_classes + H_clusters − H_both."""
        of_classes, of_clusters, of_both = map(_entropy, (classes, clusters, both))
        norm = average(of_classes, of_clusters)
        return np.asarray((of_classes + of_clusters - of_both) / np.where(norm > 0, norm, 1))

    return value


def _partition_ami(classes: Array, clusters: Array, both: Array) -> Array:
    """(I − E[I]) / (norm − E[I]), norm the mean of the entropies."""
    of_classes, of_clusters, of_both = map(_entropy, (classes, clusters, both))
    expected = np.array([_expected_information(a[a > 0], b[b > 0]) for a, b in zip(classes, clusters, strict=True)])
    room = (of_classes + of_clusters) / 2 - expected
    return np.asarray((of_classes + of_clusters - of_both - expected) / np.where(room > 0, room, 1))


def _expected_information(class_sizes: Array, cluster_sizes: Array) -> float:
    """E[I] = 1/n Σ_uv E[m log(m/λ)] over counts m of mean λ = a_u·b_v/n; some hundred times faster than exactly.

    Counts of random partitions spread less than Poisson's: the variance, and with it E to leading order, is smaller by
    (1 − a_u/n)(1 − b_v/n).
    """
    points = class_sizes.sum()
    a, a_times = np.unique(class_sizes, return_counts=True)
    b, b_times = np.unique(cluster_sizes, return_counts=True)
    log_mean, excess = _poisson_excess()
    of_pairs = np.interp(np.log(np.outer(a, b) / points), log_mean, excess) * np.outer(1 - a / points, 1 - b / points)
    return float(a_times @ of_pairs @ b_times / points)


@cache
def _poisson_excess() -> tuple[Array, Array]:
    """Log λ, evenly spaced, and E[m log(m/λ)] of Poisson counts m of mean λ."""
    log_mean = np.linspace(math.log(1e-7), math.log(1e5), 800)
    excess = []
    for mean in np.exp(log_mean):
        m = torch.arange(1, int(mean + 12 * math.sqrt(mean) + 40), dtype=torch.float64)
        probability = (m * math.log(mean) - mean - torch.lgamma(m + 1)).exp()
        excess.append(float((probability * m * (m / mean).log()).sum()))
    return log_mean, np.array(excess)


ROC_VALUES: dict[str, Callable[[Array, Array], Array]] = {"auc": _area, "eer": _equal_rates}
PARTITION_VALUES: dict[str, Callable[[Array, Array, Array], Array]] = {
    "nmi": _partition_nmi(lambda first, second: (first + second) / 2),
    "nmi_geometric": _partition_nmi(lambda first, second: np.sqrt(first * second)),
    "ami": _partition_ami,
    "f1": _partition_f1,
}


def _of_pairs_between(per_class: Tensor, counts: Array) -> ClassStatistic:
    """The mean over pairs of two classes, where class c has the mean s_c over its n_c pairs.

    A pair of the classes u and v counts w_u·w_v times, to first order w_u + w_v − 1 times, which leads to
    Σ (w_c − ½) n_c s_c / Σ (w_c − ½) n_c.
    """
    score = per_class.cpu().numpy()
    present = np.flatnonzero(~np.isnan(score) & (counts > 0))
    counts = counts[present]
    sums = score[present] * counts
    return ClassStatistic(present, lambda weights: ((weights - 0.5) @ sums) / ((weights - 0.5) @ counts))


def _of_potentials(evaluation: Evaluation, name: str) -> ClassStatistic:
    """Log mean e^{−t d²} where pairs inside class c count w_c times, those of two classes to first order in both."""
    of_classes = evaluation.details[f"{name} of classes"]
    present = np.flatnonzero(of_classes["pairs"])
    within, total, pairs_within, pairs = (
        of_classes[key][present] for key in ("within", "potential", "pairs_within", "pairs")
    )

    def value(weights: Array) -> Array:
        twice = 2 * weights - 1
        potential = weights @ within + twice @ (total - within)
        return np.asarray(np.log(potential / (weights @ pairs_within + twice @ (pairs - pairs_within))))

    return _shifted_to(evaluation[name], ClassStatistic(present, value))


def _of_spectrum(evaluation: Evaluation, name: str) -> ClassStatistic:
    """Spectral decay of squared singular values that add up from the classes, Σ w_c e_ck: so they do to first order.

    e_ck is the squared length of class c along the k-th singular direction of all vectors.
    """
    squares = evaluation.details["class_spectrum"]
    present = np.flatnonzero(squares.sum(axis=1) > 0)
    squares = squares[present]
    match = SPECTRAL_DECAY.fullmatch(name)
    assert match is not None
    reverse, drop = match["reverse"] is not None, int(match["drop"] or 0)

    def value(weights: Array) -> Array:
        drawn = torch.from_numpy(weights @ squares).clamp_(min=0).sqrt_()
        return np.array([spectral_decay(values, reverse=reverse, drop=drop) for values in drawn])

    return _shifted_to(evaluation[name], ClassStatistic(present, value))


def _shifted_to(value: float, statistic: ClassStatistic) -> ClassStatistic:
    """The statistic plus what it lacks, with all classes drawn once, to the metric itself."""
    lacks = value - float(statistic.of_weights(np.ones((1, len(statistic.classes))))[0])
    return ClassStatistic(statistic.classes, lambda weights: statistic.of_weights(weights) + lacks)


def _of_queries(scores: Tensor, classes: Tensor, count: int) -> ClassStatistic:
    """The mean of the queries: Σ w_c s_c / Σ w_c n_c, with the sum s_c of the n_c scores of a class."""
    score, number = scores.cpu().numpy(), classes.cpu().numpy()
    counted = ~np.isnan(score)
    sizes = np.bincount(number[counted], minlength=count).astype(np.float64)
    sums: Array = np.bincount(number[counted], weights=score[counted], minlength=count).astype(np.float64)
    return _ratio(sums, sizes)


def _of_classes(per_class: Tensor, counts: Array) -> ClassStatistic:
    """The mean of what the classes have by count, Σ w_c n_c s_c / Σ w_c n_c; those without a score are left out."""
    score = per_class.cpu().numpy()
    counts = np.where(np.isnan(score), 0.0, counts)
    return _ratio(np.nan_to_num(score) * counts, counts)


def _ratio(sums: Array, counts: Array) -> ClassStatistic:
    present = np.flatnonzero(counts)
    sums, counts = sums[present], counts[present]
    return ClassStatistic(present, lambda weights: (weights @ sums) / (weights @ counts), sums, counts)


def _of_curves(classes: NDArray[np.int64], utility: Array, threshold: Array, share: float | None) -> ClassStatistic:
    """OPIS, or with a share ε the ε-OPIS, of utility curves U_c (T, G) over the calibration range.

    OPIS = mean over the range of Σ w_c (U_c − Ū)² / T;  ε-OPIS = that of (Ū_best − Ū_worst)², where the best and the
    worst are the εT classes, counted as often as they were drawn, of highest and lowest mean utility.
    """
    widths = np.diff(threshold)
    over_range = (np.append(widths, 0.0) + np.append(0.0, widths)) / (2 * widths.sum())
    order = np.argsort(utility @ over_range, kind="stable")
    ranked, members = utility[order], len(utility)
    group = members if share is None else max(1, int(share * members + 0.5))

    # About the mean of all curves, where the squares are small and lose little when subtracted.
    centred = utility - utility.mean(axis=0)

    def spread(weights: Array) -> Array:
        variance = weights @ centred**2 / members - (weights @ centred / members) ** 2
        return np.asarray(variance @ over_range)

    def between_groups(weights: Array) -> Array:
        drawn = weights[:, order]
        upward, downward = np.cumsum(drawn, axis=1), np.cumsum(drawn[:, ::-1], axis=1)[:, ::-1]
        worst, best = (np.clip(group - (so_far - drawn), 0, drawn) for so_far in (upward, downward))
        return np.asarray(((best - worst) @ ranked / group) ** 2 @ over_range)

    return ClassStatistic(classes, spread if share is None else between_groups)
