"""Utility curves of classes, or of data sets, over a calibration range, and the consistency scores OPIS and ε-OPIS.

Zhang et al.: Threshold-consistent margin loss for open-world deep metric learning (2024). With TPR_i(d) the share of
the positive pairs of member i within distance d and TNR_i(d) the share of its negative pairs beyond it,

    U_i(d) = (1 + c²)·TNR_i·TPR_i / (c²·TNR_i + TPR_i)           utility of member i
    OPIS   = 1/T Σ_i 1/(d_max − d_min) ∫ (U_i(d) − Ū(d))² dd     operating-point inconsistency score
    ε-OPIS = 1/(d_max − d_min) ∫ (Ū_best(d) − Ū_worst(d))² dd    of the best and the worst ε·T members

over a calibration range [d_min, d_max]; lower is better. Members are ranked by their mean utility over the range.
`opis_far` and `opis_frr` are the same of one rate alone, U_i = 1 − FAR_i = TNR_i and U_i = 1 − FRR_i = TPR_i: they say
which rate differs between the members.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.evidence import Detail
from equimetric.ops.blocks import slices

__all__ = [
    "CLASS_CHUNK_SIZE",
    "SCORE_NAMES",
    "Consistency",
    "Noise",
    "Rate",
    "average_over_range",
    "check_rate_name",
    "check_share",
    "group_size",
    "rate_utility",
    "utility",
    "utility_gradients",
]

CLASS_CHUNK_SIZE = 1024
Rate = Literal["both", "far", "frr"]
SCORE_NAMES: dict[Rate, str] = {"both": "opis", "far": "opis_far", "frr": "opis_frr"}


@dataclass(frozen=True, eq=False)
class Noise:
    """What sampling alone contributes to the spread of utilities: see `sampling_noise`.

    numbers       (T,) the members that take part: those of at least three images, or classes
    by_member     (T,) variance of the utility of each, averaged over the range
    thresholds    (G,) where it was measured
    by_threshold  (G,) variance at each threshold, averaged over the members
    """

    numbers: Integers
    by_member: Floats
    thresholds: Floats
    by_threshold: Floats

    @property
    def value(self) -> float:
        """Mean over members and range: what OPIS would be if the members did not differ."""
        return float(self.by_member.mean())


@dataclass(frozen=True, repr=False, eq=False)
class Consistency(Detail):
    """Utility curves of the members over the calibration range, and the scores they give.

    thresholds         (G,) distances, evenly spaced over the range
    utility            (T, G), one curve for each member
    members            (T,) their names: class labels, or data sets
    numbers            (T,) their class numbers, or indices among the data sets
    calibration_range  (d_min, d_max)
    possible_error     bound on the error of a share of negative pairs where pairs are counted in bins; else 0
    sampled            number of sampled rows; None if all pairs were compared
    halves             pairs of utilities (T, G) from two halves of the sampled rows; empty if all pairs were compared
    rate               what the utility counts: both rates, or one alone
    noise              what sampling alone contributes; None where it was not measured
    note               one sentence where the score mostly measures noise
    """

    thresholds: Floats
    utility: Floats
    members: tuple[int | str, ...]
    numbers: Integers
    calibration_range: tuple[float, float]
    possible_error: float = 0.0
    sampled: int | None = None
    sampled_share: float = 1.0
    halves: tuple[tuple[Floats, Floats], ...] = ()
    rate: Rate = "both"
    noise: Noise | None = None
    note: str | None = None

    @property
    def opis(self) -> float:
        """Mean squared deviation of the utilities from their mean, averaged over the range."""
        return self._unbiased_score(None)

    def epsilon_opis(self, epsilon: float = 0.1) -> float:
        """Squared difference between the mean utilities of the best and the worst ε of the members."""
        return self._unbiased_score(check_share(epsilon))

    def standard_error(self, epsilon: float | None = None) -> float:
        """Standard error of OPIS, or of ε-OPIS, due to sampled rows; 0 if all pairs were compared."""
        if not self.halves:
            return 0.0
        share = None if epsilon is None else check_share(epsilon)
        squares = [(self._inconsistency(a, share) - self._inconsistency(b, share)) ** 2 for a, b in self.halves]
        return math.sqrt((1 - self.sampled_share) * math.fsum(squares) / len(squares)) / 2

    @property
    def mean_utility(self) -> Floats:
        """Mean utility of each member over the range, (T,)."""
        return average_over_range(self.utility, self.thresholds)

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence where the score mostly measures noise."""
        return () if self.note is None else (self.note,)

    def best(self, count: int = 5) -> dict[int | str, float]:
        """The members of largest mean utility."""
        return self._rank_members(-self.mean_utility, count)

    def worst(self, count: int = 5) -> dict[int | str, float]:
        """The members of least mean utility."""
        return self._rank_members(self.mean_utility, count)

    def json_entries(self) -> dict[str, Any]:
        """The curves and their range."""
        curves = {
            "threshold": self.thresholds,
            "utility": self.utility,
            "classes": self.numbers,
            "range": self.calibration_range,
        }
        name = SCORE_NAMES[self.rate]
        noise = {} if self.noise is None else {f"{name}_noise": self.noise.value}
        return {
            "utility" if self.rate == "both" else f"utility of {name}": curves,
            "calibration_range": self.calibration_range,
            "opis possible error of a class's far": self.possible_error,
            **noise,
        }

    def to_dict(self) -> dict[str, Any]:
        """The summary in plain types, ready for JSON."""
        name = SCORE_NAMES[self.rate]
        return {
            name: self.opis,
            f"{name}@10%": self.epsilon_opis(0.1),
            f"{name}_noise": None if self.noise is None else self.noise.value,
            "notes": list(self.notes),
            "standard_error": self.standard_error(),
            "sampled_rows": self.sampled,
            "members": len(self.members),
            "calibration_range": list(self.calibration_range),
            "thresholds": len(self.thresholds),
            "possible_error": self.possible_error,
            "mean_utility": dict(zip(map(str, self.members), self.mean_utility.tolist(), strict=True)),
        }

    def __repr__(self) -> str:
        low, high = self.calibration_range
        rate_note = "" if self.rate == "both" else f", {self.rate.upper()} alone"
        noise = [] if self.noise is None else [f"  noise     {1e3 * self.noise.value:8.3f} ×10⁻³"]
        lines = [
            f"Consistency of {len(self.members)} members, distances {low:.4f} … {high:.4f}{rate_note}",
            f"  OPIS      {1e3 * self.opis:8.3f} ×10⁻³{self._error_note(None)}",
            *noise,
            f"  10%-OPIS  {1e3 * self.epsilon_opis():8.3f} ×10⁻³{self._error_note(0.1)}",
            *(
                f"  {kind}     {', '.join(f'{name} ({value:.3f})' for name, value in utilities.items())}"
                for kind, utilities in (("best ", self.best(3)), ("worst", self.worst(3)))
            ),
        ]
        if self.sampled is not None:
            lines.append(f"  estimated from {self.sampled} sampled rows")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def _error_note(self, epsilon: float | None) -> str:
        return f" ± {1e3 * self.standard_error(epsilon):.3f}" if self.halves else ""

    def _unbiased_score(self, share: float | None) -> float:
        """Subtract the spread that sampling noise adds: half of the rows have twice as much of it."""
        value = self._inconsistency(self.utility, share)
        if not self.halves:
            return value
        half_scores = [self._inconsistency(half, share) for halves in self.halves for half in halves]
        return value - (1 - self.sampled_share) * (math.fsum(half_scores) / len(half_scores) - value)

    def _inconsistency(self, utility: Floats, share: float | None) -> float:
        if share is None:
            mean, squares = utility.mean(axis=0), np.zeros(utility.shape[1])
            for block in slices(len(utility), CLASS_CHUNK_SIZE):
                squares += ((utility[block] - mean) ** 2).sum(axis=0)
            return float(average_over_range(squares / len(utility), self.thresholds))
        count = group_size(share, len(utility))
        ranking = np.argsort(average_over_range(utility, self.thresholds), kind="stable")
        difference = utility[ranking[-count:]].mean(axis=0) - utility[ranking[:count]].mean(axis=0)
        return float(average_over_range(difference**2, self.thresholds))

    def _rank_members(self, keys: Floats, count: int) -> dict[int | str, float]:
        means = self.mean_utility
        return {self.members[i]: float(means[i]) for i in np.argsort(keys, kind="stable")[:count]}


def utility(tpr: Floats, tnr: Floats, c: float = 1.0) -> Floats:
    """U = (1 + c²)·TNR·TPR / (c²·TNR + TPR), 0 where both are 0; for c = 1 their harmonic mean."""
    denominator = c**2 * tnr + tpr
    product = (1 + c**2) * tnr * tpr
    return np.divide(product, denominator, out=np.zeros_like(product), where=denominator > 0)


def check_rate_name(rate: Rate) -> str:
    """The name of the score of this rate; an error for any other."""
    if rate not in SCORE_NAMES:
        raise unknown_name("rate", rate, SCORE_NAMES)
    return SCORE_NAMES[rate]


def rate_utility(rate: Rate, tpr: Floats, tnr: Floats, c: float = 1.0) -> Floats:
    """The utility of both rates, or 1 − the one rate."""
    return utility(tpr, tnr, c) if rate == "both" else tnr if rate == "far" else tpr


def utility_gradients(rate: Rate, tpr: Floats, tnr: Floats, c: float = 1.0) -> tuple[Floats, Floats]:
    """∂U/∂TPR and ∂U/∂TNR; for both rates (1 + c²)·c²·TNR² and (1 + c²)·TPR², each / (c²·TNR + TPR)²."""
    if rate != "both":
        return np.full_like(tpr, float(rate == "frr")), np.full_like(tpr, float(rate == "far"))
    denominator = c**2 * tnr + tpr
    factor = (1 + c**2) / np.where(denominator > 0, denominator, 1) ** 2
    return factor * c**2 * tnr**2, factor * tpr**2


def average_over_range(values: Floats, thresholds: Floats) -> Floats:
    """1/(d_max − d_min) ∫ … dd along the last axis (…, G), by the trapezoidal rule."""
    widths = np.diff(thresholds)
    weights = (np.append(widths, 0.0) + np.append(0.0, widths)) / 2
    return np.asarray(values @ weights / widths.sum())


def group_size(share: float, members: int) -> int:
    """Number of members in the best, or the worst, ε."""
    return max(1, math.floor(share * members + 0.5))


def check_share(epsilon: float) -> float:
    """The share ε itself; an error where it is not in (0, 0.5]."""
    if not 0 < epsilon <= 0.5:
        raise EquimetricError(f"ε is {epsilon}; the best and the worst share of the members must be above 0, up to 0.5")
    return epsilon
