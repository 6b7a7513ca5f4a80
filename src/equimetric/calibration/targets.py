"""What a threshold is chosen for: a false accept rate, a false reject rate, or the least expected cost."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from equimetric.calibration.rates import TargetRate
from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.engine.pair_distances import PairDistances
from equimetric.evaluation.metrics.roc import MIN_ERRORS, OperatingPoint, far_and_frr, tar_at_far

__all__ = ["Costs", "FalseAccepts", "FalseRejects", "Target", "make_target", "read_target"]

DEFAULT_FAR = 1e-3


class Target(Protocol):
    """What a threshold is chosen for; `str` says it in words."""

    def threshold(self, distances: PairDistances) -> float:
        """The chosen threshold: pairs at a smaller distance are accepted."""

    def rate(self, point: OperatingPoint) -> TargetRate:
        """The rate that classes are held to, given the rates of all pairs at the threshold."""

    def check_support(self, distances: PairDistances, where: str) -> None:
        """Raise an error where there are too few pairs."""

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types."""


@dataclass(frozen=True)
class FalseAccepts:
    """At most this share of the negative pairs is accepted, and as many positive pairs as that allows."""

    far: float

    def __post_init__(self) -> None:
        if not 0 < self.far < 1:
            raise EquimetricError(f"far is {self.far}; give a false accept rate between 0 and 1")

    def __str__(self) -> str:
        return f"FAR {self.far:g}"

    def threshold(self, distances: PairDistances) -> float:
        """The distance of the first negative pair too many."""
        return tar_at_far(distances, self.far).threshold

    def rate(self, point: OperatingPoint) -> TargetRate:  # noqa: ARG002
        """The false accept rate itself."""
        return TargetRate(far=self.far)

    def check_support(self, distances: PairDistances, where: str) -> None:
        """Ten false accepts are expected."""
        _check_pairs("accept", self.far, distances, where)

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types."""
        return asdict(self)


@dataclass(frozen=True)
class FalseRejects:
    """At most this share of the positive pairs is rejected, and as many negative pairs as that allows."""

    frr: float

    def __post_init__(self) -> None:
        if not 0 < self.frr < 1:
            raise EquimetricError(f"frr is {self.frr}; give a false reject rate between 0 and 1")

    def __str__(self) -> str:
        return f"FRR {self.frr:g}"

    def threshold(self, distances: PairDistances) -> float:
        """Just above the distance of the last positive pair that must be accepted."""
        needed = distances.positives - math.floor(self.frr * distances.positives + 1e-9)
        operating = distances.operating_distances
        first, last = 0, len(operating) - 1
        while first < last:
            middle = (first + last) // 2
            enough = float(distances.count_accepted(operating[middle]).positive) >= needed
            first, last = (first, middle) if enough else (middle + 1, last)
        return float(np.nextafter(operating[first], np.inf))

    def rate(self, point: OperatingPoint) -> TargetRate:  # noqa: ARG002
        """The false reject rate itself."""
        return TargetRate(frr=self.frr)

    def check_support(self, distances: PairDistances, where: str) -> None:
        """Ten false rejects are expected."""
        _check_pairs("reject", self.frr, distances, where)

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types."""
        return asdict(self)


@dataclass(frozen=True)
class Costs:
    """The least expected cost of a pair, prior·false_reject·FRR + (1 − prior)·false_accept·FAR.

    prior  probability that a pair to decide on is of one class
    """

    false_accept: float
    false_reject: float
    prior: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(cost) and cost > 0 for cost in (self.false_accept, self.false_reject)):
            raise EquimetricError(
                f"a false accept costs {self.false_accept} and a false reject {self.false_reject}; both must be above 0"
            )
        if not 0 < self.prior < 1:
            raise EquimetricError(
                f"the prior is {self.prior}; give the probability, between 0 and 1, that a pair is of one class"
            )

    def __str__(self) -> str:
        return (
            f"the least cost (false accept {self.false_accept:g}, false reject {self.false_reject:g}, "
            f"prior {self.prior:g})"
        )

    def expected(self, far: Floats, frr: Floats) -> Floats:
        """The expected cost of a pair at these rates."""
        return self.prior * self.false_reject * frr + (1 - self.prior) * self.false_accept * far

    def threshold(self, distances: PairDistances) -> float:
        """The smallest of the thresholds of least cost, just above the distance of a pair."""
        operating = distances.operating_distances
        counts = distances.count_accepted(operating)
        cost = self.expected(counts.negative / distances.negatives, 1 - counts.positive / distances.positives)
        best = int(np.argmin(cost))
        if best == len(operating) - 1 or cost[best] >= self.prior * self.false_reject:
            always = "accept" if best == len(operating) - 1 else "reject"
            raise EquimetricError(
                f"at these costs it is cheapest to {always} every pair, so no threshold is needed; check the costs and "
                f"the prior of {self.prior:g}"
            )
        return float(np.nextafter(operating[best], np.inf))

    def rate(self, point: OperatingPoint) -> TargetRate:
        """The false accept rate of all pairs at the threshold."""
        return TargetRate(far=point.far)

    def check_support(self, distances: PairDistances, where: str) -> None:
        """The least cost has no rate of its own that could be too small."""

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types."""
        return {"cost": asdict(self)}


def make_target(far: float | None, frr: float | None, cost: Sequence[float] | None) -> Target:
    """The one target that is given; a false accept rate of 1e-3 if none is."""
    if sum(option is not None for option in (far, frr, cost)) > 1:
        raise EquimetricError("a threshold has one target; give one of far, frr and cost")
    if frr is not None:
        return FalseRejects(float(frr))
    if cost is None:
        return FalseAccepts(DEFAULT_FAR if far is None else float(far))
    if len(cost) != 3:
        raise EquimetricError(
            f"cost has {len(cost)} numbers; give three: of a false accept, of a false reject, and the prior"
        )
    return Costs(*map(float, cost))


def read_target(document: Any) -> Target:
    """The target that `to_dict` wrote."""
    (kind, value), *others = document.items()
    if others or kind not in ("far", "frr", "cost"):
        raise ValueError(f"its target is {document!r}")
    return Costs(**value) if kind == "cost" else FalseAccepts(value) if kind == "far" else FalseRejects(value)


def operating_point(distances: PairDistances, threshold: float) -> OperatingPoint:
    """The rates of all pairs at a threshold."""
    far, frr = far_and_frr(distances, threshold, strictly_below=True)
    return OperatingPoint(threshold, far, 1 - frr)


def _check_pairs(error: str, rate: float, distances: PairDistances, where: str) -> None:
    kind, available = ("negative", distances.negatives) if error == "accept" else ("positive", distances.positives)
    needed = math.ceil(MIN_ERRORS / rate)
    if available < needed:
        samples = len(distances.sets.queries)
        times = math.ceil(10 * math.sqrt(needed / available)) / 10
        name = "far" if error == "accept" else "frr"
        raise EquimetricError(
            f"a false {error} rate of {rate:g} needs at least {needed} {kind} pairs, so that {MIN_ERRORS} false "
            f"{error}s are expected; there are {available} among {samples} samples{where}: give about "
            f"{times:g} times as many samples, or a larger {name}"
        )
