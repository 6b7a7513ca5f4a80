"""Intervals over seeds × classes: what new seeds and new classes would change.

Seeds are drawn, and so are the test classes. With z_sc = C w_c (d_sc − d̄), which for equal weights is d_sc − d̄:

    v_s = var_s(mean_c z) / n                    v_c = var_c(mean_s z) / C
    v_e = Σ residual² / ((n − 1)(C − 1) n C)     residual = z − row mean − column mean + mean
    V   = max(v_s + v_c − v_e, v_s, v_c)

v_s and v_c both contain the noise v_e of single cells, hence the subtraction. The degrees of freedom are
Satterthwaite's, ν = V² / (v_s²/(n − 1) + v_c²/(C − 1) + v_e²/((n − 1)(C − 1))), or those of the one term that the
maximum takes. z linearises the query average, in which the class weights are drawn with the classes: the interval
belongs to the number printed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.intervals import check_confidence, t_quantile
from equimetric.studies.statistics.class_scores import ClassScores, Floats, Pairing, pair_rows

__all__ = [
    "NEW_CLASSES",
    "THESE_CLASSES",
    "Estimand",
    "SeedTerms",
    "TwoWayInterval",
    "VarianceParts",
    "combine_terms",
    "two_way_difference",
    "two_way_interval",
]

Estimand: TypeAlias = Literal["new seeds and new classes", "these classes"]
NEW_CLASSES: Estimand = "new seeds and new classes"
THESE_CLASSES: Estimand = "these classes"


class SeedTerms(NamedTuple):
    """v_s and v_e of one set of n seeds."""

    seed: float
    residual: float
    n: int


class VarianceParts(NamedTuple):
    """Variance of a single score between seeds, between classes, and of what is left: σ_s², σ_c², σ_e²."""

    seed: float
    class_: float
    residual: float


@dataclass(frozen=True)
class TwoWayInterval:
    """mean ± t_ν √V, of one row or of the difference of two.

    variance  V, the variance of the mean; NaN where one seed leaves it unknown
    estimand  population of the interval: new seeds and new classes, or new seeds on these classes
    pairing   how the seeds of two rows were matched; None for one row
    seeds     number of seeds; of both rows where their seeds differ; empty for rows without seeds
    parts     variances of a single score, from which `project_interval` predicts those of other seeds and classes
    """

    mean: float
    variance: float
    degrees_of_freedom: float
    estimand: Estimand
    pairing: Pairing | None
    seeds: tuple[int, ...]
    classes: int
    parts: VarianceParts
    confidence: float = 0.95

    @property
    def half_width(self) -> float:
        """t_ν √V."""
        # Without spread ν says nothing and may be infinite.
        return t_quantile(self.confidence, self.degrees_of_freedom) * self.error if self.variance else 0.0

    @property
    def error(self) -> float:
        """Standard error √V."""
        return math.sqrt(self.variance)

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half_width

    @property
    def seeds_unknown(self) -> bool:
        """Whether a row has a single seed, so that its spread over seeds is unknown."""
        return 1 in self.seeds

    @property
    def p_value(self) -> float:
        """Two-sided p of the hypothesis that the mean is 0; NaN where one seed cannot tell."""
        from scipy.special import stdtr

        if self.seeds_unknown:
            return math.nan
        if self.variance == 0:
            return 0.0 if self.mean else 1.0
        return 2 * float(stdtr(self.degrees_of_freedom, -abs(self.mean) / self.error))

    @property
    def basis(self) -> str:
        """The samples behind the interval, in words: '10 seeds × 40 classes'."""
        seeds = " and ".join(f"{n} seed{'s' if n != 1 else ''}" for n in self.seeds)
        if self.estimand == THESE_CLASSES:
            seeds_text = seeds or "no seeds"
            return f"{seeds_text}, for these {self.classes} classes" + (
                ": spread unknown" if self.seeds_unknown else ""
            )
        if self.seeds_unknown:
            return f"{self.classes} classes only: with one seed the spread over seeds is unknown"
        return f"{seeds} × {self.classes} classes" if seeds else f"{self.classes} classes only: there are no seeds"

    def at(self, confidence: float) -> "TwoWayInterval":
        """The same mean with an interval of another confidence."""
        check_confidence(confidence)
        return replace(self, confidence=confidence)

    def __neg__(self) -> "TwoWayInterval":
        return replace(self, mean=-self.mean)


def two_way_interval(
    scores: ClassScores, *, estimand: Estimand = NEW_CLASSES, confidence: float = 0.95
) -> TwoWayInterval:
    """The interval of a row's score. A row without seeds has classes only, and `basis` says so."""
    groups = () if scores.seeds is None else (scores.values,)
    return _interval(groups, scores.class_means, scores.weights, None, estimand, confidence)


def two_way_difference(
    a: ClassScores, b: ClassScores, *, estimand: Estimand = NEW_CLASSES, confidence: float = 0.95
) -> TwoWayInterval:
    """The interval of the score of `a` minus that of `b`, on the same classes.

    d_sc is the difference of common seeds, if there are two or more, or that of a seed and a row without seeds. Seeds
    that differ are independent: the terms v_s and v_e of both rows add up (Welch).
    """
    paired = pair_rows(a, b)
    return _interval(paired.groups, paired.difference, a.weights, paired.pairing, estimand, confidence)


def combine_terms(groups: Sequence[SeedTerms], v_c: float, classes: int) -> tuple[float, float]:
    """V and its degrees of freedom from independent sets of seeds and the class term."""
    v_s, v_e = sum(group.seed for group in groups), sum(group.residual for group in groups)
    total = v_s + v_c - v_e
    variance = max(total, v_s, v_c)
    if variance == 0:
        return 0.0, math.inf
    by_seed = sum(group.seed**2 / (group.n - 1) for group in groups)
    if total < variance:
        return variance, v_s**2 / by_seed if v_s == variance else classes - 1.0
    spread = by_seed
    if classes > 1:
        spread += v_c**2 / (classes - 1)
        spread += sum(group.residual**2 / ((group.n - 1) * (classes - 1)) for group in groups)
    return variance, variance**2 / spread


def _interval(
    seed_groups: Sequence[Floats],
    by_class: Floats,
    weights: Floats,
    pairing: Pairing | None,
    estimand: Estimand,
    confidence: float,
) -> TwoWayInterval:
    """From independent sets of seeds, (n_g, C) each, and the class means, (C,)."""
    check_confidence(confidence)
    seeds, classes = tuple(map(len, seed_groups)), len(weights)
    mean = float(weights @ by_class)
    # A single seed has no spread to add; its noise is part of the class term.
    groups = [_seed_terms(scores, weights) for scores in seed_groups if len(scores) > 1]
    if estimand == THESE_CLASSES:
        variance, degrees = combine_terms([group._replace(residual=0.0) for group in groups], 0.0, classes)
        parts = VarianceParts(sum(group.n * group.seed for group in groups), 0.0, 0.0)
        if 1 in seeds:
            variance = degrees = math.nan
    elif estimand == NEW_CLASSES:
        if classes < 2:
            raise EquimetricError(f"one class says nothing about new ones; use the estimand {THESE_CLASSES!r}")
        v_c = float((classes * weights * (by_class - mean)).var(ddof=1)) / classes
        variance, degrees = combine_terms(groups, v_c, classes)
        parts = _variance_parts(groups, v_c, classes)
    else:
        raise EquimetricError(f"the estimand is {NEW_CLASSES!r} or {THESE_CLASSES!r}, not {estimand!r}")
    return TwoWayInterval(mean, variance, degrees, estimand, pairing, seeds, classes, parts, confidence)


def _seed_terms(scores: Floats, weights: Floats) -> SeedTerms:
    """v_s and v_e of (n, C) scores with n > 1."""
    n, classes = scores.shape
    z = classes * weights * (scores - (scores @ weights).mean())
    rows, columns = z.mean(axis=1, keepdims=True), z.mean(axis=0, keepdims=True)
    residual = z - rows - columns + z.mean()
    degrees = (n - 1) * max(classes - 1, 1)
    return SeedTerms(float(rows.var(ddof=1)) / n, float(np.square(residual).sum()) / (degrees * n * classes), n)


def _variance_parts(groups: Sequence[SeedTerms], v_c: float, classes: int) -> VarianceParts:
    """Expected mean squares solved for the variances, not below 0."""
    seed = sum(group.n * max(group.seed - group.residual, 0.0) for group in groups)
    residual = sum(group.n * classes * group.residual for group in groups)
    v_e = sum(group.residual for group in groups)
    return VarianceParts(seed, classes * max(v_c - v_e, 0.0), residual)
