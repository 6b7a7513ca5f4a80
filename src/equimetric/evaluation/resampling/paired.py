"""Paired comparison of two embedding spaces on the same queries, by resampling classes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.resampling.bootstrap import check_resampling, percentile_interval, resample_both
from equimetric.evaluation.resampling.class_statistics import WEIGHT_CHUNK_SIZE, class_statistic
from equimetric.evaluation.result import Evaluation
from equimetric.ops.blocks import slices
from equimetric.seeding import derive_seed

__all__ = ["PairedComparison", "PairedDifference", "compare_paired"]


@dataclass(frozen=True)
class PairedDifference:
    """A metric of two embedding spaces on the same queries.

    first      the metric of the first space
    other      that of the other
    low, high  percentile interval of first − other, under the same draws for both
    p_value    two-sided, for the hypothesis that neither space is better
    test       what p is from: `sign flips` of the differences of classes, or the `bootstrap` itself
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
class PairedComparison(Mapping[str, PairedDifference]):
    """Two embedding spaces on the same queries, metric by metric: comparison["map@r"].p_value."""

    differences: Mapping[str, PairedDifference]
    confidence: float
    draws: int

    def to_dict(self) -> dict[str, Any]:
        """All differences in plain types, ready for JSON."""
        metrics = {
            name: {"difference": difference.difference, **asdict(difference)} for name, difference in self.items()
        }
        return {"metrics": metrics, "confidence": self.confidence, "draws": self.draws}

    def __getitem__(self, name: str) -> PairedDifference:
        return self.differences[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.differences)

    def __len__(self) -> int:
        return len(self.differences)

    def __repr__(self) -> str:
        width = max(map(len, self))
        heading = f"{'':<{width}}     first     other    difference  [{self.confidence:.0%} interval]          p"
        lines = [
            f"{name:<{width}}  {paired.first:8.4f}  {paired.other:8.4f}  {paired.difference:+12.4f}  "
            f"[{paired.low:+.4f}, {paired.high:+.4f}]  {paired.p_value:.4f}"
            for name, paired in self.items()
        ]
        return "\n".join([heading, *lines])


def compare_paired(
    evaluation: Evaluation,
    other: Evaluation,
    names: Iterable[str] | None = None,
    *,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> PairedComparison:
    """The differences of two spaces evaluated on the same queries; by default in all metrics that both have.

    Where a metric is a mean over queries or classes, p is the share of random sign patterns, one sign for each class,
    whose mean difference is at least as large as the observed one: if neither space were better, the two could be
    swapped class by class. Otherwise p follows from the share of resampled differences on either side of zero.
    """
    check_resampling(confidence, draws)
    _check_same_queries(evaluation, other)
    if names is None:
        names = [name for name in evaluation if name in other and _can_resample(evaluation, name)]
        if not names:
            raise EquimetricError(
                "the two evaluations share no metric that can be resampled; evaluate both with the same metrics"
            )
    differences = {name: _difference(evaluation, other, name, confidence, draws, seed) for name in names}
    return PairedComparison(differences, confidence, draws)


def _difference(
    evaluation: Evaluation, other: Evaluation, name: str, confidence: float, draws: int, seed: int
) -> PairedDifference:
    first, second = class_statistic(evaluation, name), class_statistic(other, name)
    if not np.array_equal(first.classes, second.classes) or not _equal_counts(first.counts, second.counts):
        raise EquimetricError(
            f"{name!r} covers different queries or classes in the two evaluations; use the same options in both"
        )
    first_draws, second_draws = resample_both(first, second, draws, seed)
    differences = first_draws - second_draws
    low, high = percentile_interval(differences, confidence)
    if first.sums is not None and second.sums is not None:
        p, test = _sign_flips(first.sums - second.sums, draws, seed), "sign flips"
    else:
        one_side = min((differences <= 0).sum(), (differences >= 0).sum())
        p, test = min(1.0, 2 * float(1 + one_side) / (1 + draws)), "bootstrap"
    return PairedDifference(evaluation[name], other[name], low, high, p, test, len(first.classes))


def _can_resample(evaluation: Evaluation, name: str) -> bool:
    try:
        class_statistic(evaluation, name)
    except EquimetricError:
        return False
    return True


def _sign_flips(difference: Floats, draws: int, seed: int) -> float:
    """Share of sign patterns σ, the observed one included, with |Σ σ_c d_c| ≥ |Σ d_c|."""
    generator = np.random.default_rng(derive_seed(seed, "sign flips"))
    # Sums that are equal in decimal may differ in their last bits.
    observed = abs(float(difference.sum())) - 1e-12 * float(np.abs(difference).sum())
    extreme = 1
    for block in slices(draws, max(1, WEIGHT_CHUNK_SIZE // len(difference))):
        signs = generator.choice([-1.0, 1.0], size=(block.stop - block.start, len(difference)))
        extreme += int((np.abs(signs @ difference) >= observed).sum())
    return extreme / (1 + draws)


def _check_same_queries(evaluation: Evaluation, other: Evaluation) -> None:
    if evaluation.queries != other.queries:
        raise EquimetricError(
            f"one evaluation has {evaluation.queries} queries and the other {other.queries}; a paired comparison needs "
            "the same queries in the same order"
        )
    first, second = np.asarray(evaluation.labels), np.asarray(other.labels)
    comparable = first.dtype.kind == second.dtype.kind and first.shape == second.shape
    unequal = (first != second).reshape(len(first), -1).any(axis=1) if comparable else np.array([True])
    different = np.flatnonzero(unequal)
    if len(different):
        row = int(different[0])
        raise EquimetricError(
            f"query {row} is of class {evaluation.label(row)} in one evaluation and {other.label(row)} in the other; "
            "a paired comparison needs the same queries in the same order"
        )


def _equal_counts(first: Floats | None, second: Floats | None) -> bool:
    return (first is None) == (second is None) and (first is None or np.array_equal(first, np.asarray(second)))
