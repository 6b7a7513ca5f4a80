"""How sure a metric is: intervals, and paired comparisons of two embedding spaces, by resampling classes.

Queries of one class succeed and fail together, so it is classes that are drawn, not queries: with replacement, as many
as there are, each with all its queries. A metric is then a function of how often each class was drawn, its weight w_c;
all draws are taken together as matrix products. What a metric owes to all classes at once stays as it is: the gallery
that a query is ranked in, the threshold of `tar@far=…`, the distance between classes in `pi_ratio`.

A pair of two classes counts w_u·w_v times, taken as w_u + w_v − 1: `auc`, `eer`, `far@…`, `uniformity` and `pi_inter`
follow from what single classes have, to first order in how often these are drawn; so does `spectral_decay`, from the
lengths of classes along the singular directions. `nmi`, `ami` and `f1` keep the clusters that all points formed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError
from equimetric.evaluation.class_statistics import ClassStatistic, statistic_of
from equimetric.evaluation.exact import slices
from equimetric.evaluation.result import Evaluation
from equimetric.seeding import derive_seed

__all__ = ["Comparison", "Difference", "Interval", "compare", "interval"]

Array = NDArray[np.float64]
DRAWN_AT_A_TIME = 2**22
"""Weights in memory at once, at most."""


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


def interval(
    evaluation: Evaluation, name: str, *, confidence: float = 0.95, draws: int = 2000, seed: int = 0
) -> Interval:
    """The percentile interval of one metric under resampling of classes."""
    _check(confidence, draws)
    statistic = statistic_of(evaluation, name)
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
    first, second = statistic_of(evaluation, name), statistic_of(other, name)
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


def _is_resampled(evaluation: Evaluation, name: str) -> bool:
    try:
        statistic_of(evaluation, name)
    except EquimetricError:
        return False
    return True


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
