"""How sure a metric is: intervals, and paired comparisons of two embedding spaces, by resampling classes.

Queries of one class succeed and fail together, so it is classes that are drawn, not queries: with replacement, as many
as there are, each with all its queries. A metric is then a function of how often each class was drawn, its weight w_c;
all draws are taken together as matrix products. What a metric owes to all classes at once stays as it is: the gallery
that a query is ranked in, the threshold of `tar@far=…`, the distance between classes in `pi_ratio`.

A negative pair counts for both its classes, half for each: `auc` and `eer` follow from the curves of single classes, to
first order in how often these are drawn. `nmi` and `f1` keep the clusters that all points formed together. `ami`,
`uniformity`, `spectral_decay`, `far@…` and the distance between classes alone have no such interval.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.exact import slices
from equimetric.evaluation.result import Evaluation
from equimetric.seeding import derive_seed

__all__ = ["Comparison", "Difference", "Interval", "compare", "interval"]

Array = NDArray[np.float64]
DRAWN_AT_A_TIME = 2**22
"""Weights in memory at once, at most."""
OPIS = re.compile(r"opis(?:@(?P<percent>[0-9.]+)%)?")
MEANS_OF_CLASSES = re.compile(r"pi_(?:intra|ratio)(?:_euclidean)?")
MEANS_OF_POSITIVE_PAIRS = re.compile(r"tar@far=.+|frr@distance=.+|alignment(?:@.+)?")


@dataclass(frozen=True)
class Interval:
    """A metric, and between which values the given share of its resampled values lie.

    value           the metric itself
    low, high       ends of the percentile interval
    standard_error  standard deviation of the resampled values
    classes         how many classes were drawn from, and as many each time
    draws           how often
    """

    value: float
    low: float
    high: float
    standard_error: float
    confidence: float
    classes: int
    draws: int


@dataclass(frozen=True)
class Difference:
    """A metric of two embedding spaces on the same queries.

    first      the metric of the first space
    other      that of the other
    low, high  percentile interval of first − other, both spaces resampled alike
    p_value    two-sided, for the hypothesis that neither space is better
    test       how p was found: `sign flips` of the differences within classes, or from the `bootstrap` itself
    """

    first: float
    other: float
    low: float
    high: float
    p_value: float
    test: str
    classes: int

    @property
    def difference(self) -> float:
        """First − other."""
        return self.first - self.other


@dataclass(frozen=True, repr=False)
class Comparison(Mapping[str, Difference]):
    """Two embedding spaces on the same queries, metric by metric: comparison["map@r"].p_value."""

    differences: Mapping[str, Difference]
    confidence: float
    draws: int

    def to_dict(self) -> dict[str, Any]:
        """All differences in plain types, ready for JSON."""
        metrics = {name: {"difference": found.difference, **asdict(found)} for name, found in self.items()}
        return {"metrics": metrics, "confidence": self.confidence, "draws": self.draws}

    def __getitem__(self, name: str) -> Difference:
        return self.differences[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.differences)

    def __len__(self) -> int:
        return len(self.differences)

    def __repr__(self) -> str:
        width = max(map(len, self))
        heading = f"{'':<{width}}     first     other    difference  [{self.confidence:.0%} interval]          p"
        lines = [
            f"{name:<{width}}  {found.first:8.4f}  {found.other:8.4f}  {found.difference:+12.4f}  "
            f"[{found.low:+.4f}, {found.high:+.4f}]  {found.p_value:.4f}"
            for name, found in self.items()
        ]
        return "\n".join([heading, *lines])


@dataclass(frozen=True)
class ClassStatistic:
    """A metric as a function of class weights: of (B, C) weights the B values; `classes` (C,) are their numbers.

    Where the metric is Σ w_c s_c / Σ w_c n_c, `sums` s and `counts` n are given too.
    """

    classes: NDArray[np.int64]
    of_weights: Callable[[Array], Array]
    sums: Array | None = None
    counts: Array | None = None


def interval(
    evaluation: Evaluation, name: str, *, confidence: float = 0.95, draws: int = 2000, seed: int = 0
) -> Interval:
    """The percentile interval of one metric under resampling of classes."""
    _check(confidence, draws)
    statistic = _statistic(evaluation, name)
    values = _resampled(statistic, statistic, draws, seed)[0]
    low, high = _percentiles(values, confidence)
    error, classes = float(values.std(ddof=1)), len(statistic.classes)
    return Interval(evaluation[name], low, high, error, confidence, classes, draws)


def compare(
    evaluation: Evaluation,
    other: Evaluation,
    names: Iterable[str] | None = None,
    *,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Comparison:
    """The differences of two spaces that were judged on the same queries; by default in all metrics that both have.

    Where a metric is a mean over queries or classes, p is the share of random sign patterns, one sign for each class,
    whose mean difference is at least as large as the one found: were neither space better, the two could be exchanged
    class by class. Otherwise p follows from the share of resampled differences on either side of zero.
    """
    _check(confidence, draws)
    _check_same_queries(evaluation, other)
    if names is None:
        names = [name for name in evaluation if name in other and _is_resampled(evaluation, name)]
        if not names:
            raise EquimetricError("the two evaluations share no metric that can be resampled; evaluate both alike")
    differences = {name: _difference(evaluation, other, name, confidence, draws, seed) for name in names}
    return Comparison(differences, confidence, draws)


def _difference(
    evaluation: Evaluation, other: Evaluation, name: str, confidence: float, draws: int, seed: int
) -> Difference:
    first, second = _statistic(evaluation, name), _statistic(other, name)
    if not np.array_equal(first.classes, second.classes) or not _same(first.counts, second.counts):
        raise EquimetricError(
            f"{name!r} was taken over different queries or classes in the two evaluations; use the same options in both"
        )
    of_first, of_second = _resampled(first, second, draws, seed)
    differences = of_first - of_second
    low, high = _percentiles(differences, confidence)
    if first.sums is not None and second.sums is not None:
        p, test = _sign_flips(first.sums - second.sums, draws, seed), "sign flips"
    else:
        one_side = min((differences <= 0).sum(), (differences >= 0).sum())
        p, test = min(1.0, 2 * float(1 + one_side) / (1 + draws)), "bootstrap"
    return Difference(evaluation[name], other[name], low, high, p, test, len(first.classes))


def _statistic(evaluation: Evaluation, name: str) -> ClassStatistic:
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


def _is_resampled(evaluation: Evaluation, name: str) -> bool:
    try:
        _statistic(evaluation, name)
    except EquimetricError:
        return False
    return True


def _of_class_curves(evaluation: Evaluation, name: str) -> ClassStatistic:
    """AUC or EER of FAR = Σ w_c n_c(d) / Σ w_c n_c and TAR likewise, of the curves n_c of single classes."""
    curves = evaluation.details["class_roc"]
    present = np.flatnonzero(curves["negatives"] > 0)
    positive, negative, positives, negatives = (
        curves[key][present] for key in ("positive", "negative", "positives", "negatives")
    )

    def value(weights: Array) -> Array:
        tar = weights @ positive / np.maximum(weights @ positives, 1)[:, None]
        far = weights @ negative / np.maximum(weights @ negatives, 1)[:, None]
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


ROC_VALUES: dict[str, Callable[[Array, Array], Array]] = {"auc": _area, "eer": _equal_rates}
PARTITION_VALUES: dict[str, Callable[[Array, Array, Array], Array]] = {
    "nmi": _partition_nmi(lambda first, second: (first + second) / 2),
    "nmi_geometric": _partition_nmi(lambda first, second: np.sqrt(first * second)),
    "f1": _partition_f1,
}


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


def _resampled(first: ClassStatistic, second: ClassStatistic, draws: int, seed: int) -> tuple[Array, Array]:
    """Both statistics under the same draws, (draws,) each."""
    values = np.empty((2, draws))
    generator = np.random.default_rng(derive_seed(seed, "bootstrap"))
    for some, weights in _drawn_weights(len(first.classes), draws, generator):
        values[0, some] = first.of_weights(weights)
        values[1, some] = values[0, some] if second is first else second.of_weights(weights)
    return values[0], values[1]


def _drawn_weights(classes: int, draws: int, generator: np.random.Generator) -> Iterator[tuple[slice, Array]]:
    """How often each class is among `classes` drawn with replacement: blocks (B, classes), until there are `draws`."""
    for some in slices(draws, max(1, DRAWN_AT_A_TIME // classes)):
        rows = some.stop - some.start
        drawn = generator.integers(classes, size=(rows, classes)) + classes * np.arange(rows)[:, None]
        yield some, np.bincount(drawn.ravel(), minlength=rows * classes).reshape(rows, classes).astype(np.float64)


def _sign_flips(difference: Array, draws: int, seed: int) -> float:
    """Share of sign patterns σ, the given one among them, with |Σ σ_c d_c| ≥ |Σ d_c|."""
    generator = np.random.default_rng(derive_seed(seed, "sign flips"))
    # Sums that are equal in decimal may differ in their last bits.
    least = abs(float(difference.sum())) - 1e-12 * float(np.abs(difference).sum())
    extreme = 1
    for some in slices(draws, max(1, DRAWN_AT_A_TIME // len(difference))):
        signs = generator.choice([-1.0, 1.0], size=(some.stop - some.start, len(difference)))
        extreme += int((np.abs(signs @ difference) >= least).sum())
    return extreme / (1 + draws)


def _percentiles(values: Array, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _check(confidence: float, draws: int) -> None:
    if not 0 < confidence < 1:
        raise EquimetricError(f"confidence is {confidence}; it must lie between 0 and 1, such as 0.95")
    if draws < 2:
        raise EquimetricError(f"draws is {draws}; an interval needs at least 2, and some thousand to be steady")


def _check_same_queries(evaluation: Evaluation, other: Evaluation) -> None:
    if evaluation.queries != other.queries:
        raise EquimetricError(
            f"one evaluation has {evaluation.queries} queries and the other {other.queries}; a paired comparison needs "
            "the same queries in the same order"
        )
    first, second = np.asarray(evaluation.labels), np.asarray(other.labels)
    different = np.flatnonzero(first != second) if first.dtype.kind == second.dtype.kind else np.array([0])
    if len(different):
        row = int(different[0])
        raise EquimetricError(
            f"query {row} is of class {first[row]} in one evaluation and {second[row]} in the other; a paired "
            "comparison needs the same queries in the same order"
        )


def _same(first: Array | None, second: Array | None) -> bool:
    return (first is None) == (second is None) and (first is None or np.array_equal(first, np.asarray(second)))
