"""Intervals over seeds × classes: what new seeds and new classes would change.

Seeds are drawn, and so are the test classes. With z_sc = C w_c (d_sc − d̄), which for equal weights is d_sc − d̄:

    v_s = var_s(mean_c z) / n                    v_c = var_c(mean_s z) / C
    v_e = Σ residual² / ((n − 1)(C − 1) n C)     residual = z − row mean − column mean + mean
    V   = max(v_s + v_c − v_e, v_s, v_c)         the variance of the mean
    h²  = max(t_s² v_s + t_c² (v_c − v_e), t_s² v_s, t_c² v_c)

v_s and v_c both contain the noise v_e of single cells, hence the subtraction. The half width h has the same form as V,
each term with its own quantile: t_s of the degrees of freedom ν_s of v_s, n − 1 for one set of seeds, and t_c of C − 1
(Banerjee, 1961). One quantile for V, with Satterthwaite's degrees of freedom, is too small where few seeds happen to
agree: the interval is then narrow *and* takes its degrees of freedom from the classes.

z linearises the query average, in which the class weights are drawn with the classes: the interval belongs to the
number printed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.intervals import check_confidence, t_quantile
from equimetric.studies.statistics.class_scores import ClassScores, Floats, Pairing, pair_rows
from equimetric.studies.statistics.pooling import PooledSeeds, SeedPool, SeedSpread

__all__ = [
    "NEW_CLASSES",
    "THESE_CLASSES",
    "Estimand",
    "SeedTerms",
    "TwoWayInterval",
    "VarianceParts",
    "VarianceTerms",
    "combine_terms",
    "two_way_difference",
    "two_way_interval",
]

Estimand: TypeAlias = Literal["new seeds and new classes", "these classes"]
NEW_CLASSES: Estimand = "new seeds and new classes"
THESE_CLASSES: Estimand = "these classes"

SMALLEST_P = 1e-13
"""A smaller p is that of one term alone: quantiles of a confidence that is nearer to 1 are not exact."""


ALONE = SeedPool()


class SeedTerms(NamedTuple):
    """v_s and v_e of one set of n seeds."""

    seed: float
    residual: float
    n: int
    pool: SeedPool = ALONE


class VarianceTerms(NamedTuple):
    """v_s with its degrees of freedom ν_s, v_c with C − 1, and v_e."""

    seed: float
    seed_degrees: float
    class_: float
    class_degrees: float
    residual: float

    @property
    def variance(self) -> float:
        """V."""
        return self.largest(1.0, 1.0)

    def largest(self, of_seeds: float, of_classes: float) -> float:
        """The maximum of V, each term times a factor."""
        seed, class_ = of_seeds * self.seed, of_classes * self.class_
        return max(seed + of_classes * (self.class_ - self.residual), seed, class_)

    @property
    def degrees_of_freedom(self) -> float:
        """Satterthwaite's of V, V² / (v_s²/ν_s + v_c²/(C − 1) + v_e²/(ν_s (C − 1))), or those of its one term."""
        variance = self.variance
        if variance == 0:
            return math.inf
        if self.seed + self.class_ - self.residual < variance:
            return self.seed_degrees if self.seed == variance else self.class_degrees
        spread = self.seed**2 / self.seed_degrees if self.seed else 0.0
        if self.class_degrees:
            spread += self.class_**2 / self.class_degrees
            spread += self.residual**2 / (self.seed_degrees * self.class_degrees) if self.residual else 0.0
        return variance**2 / spread

    def half_width(self, confidence: float) -> float:
        """Half width h of this confidence."""
        factors = [
            t_quantile(confidence, degrees) ** 2 if variance else 0.0
            for variance, degrees in ((self.seed, self.seed_degrees), (self.class_, self.class_degrees))
        ]
        return math.sqrt(self.largest(*factors))

    def p_value(self, mean: float) -> float:
        """1 − the confidence at which the interval ends at 0."""
        from scipy.optimize import brentq
        from scipy.special import stdtr

        if self.variance == 0:
            return 0.0 if mean else 1.0
        single = [
            2 * float(stdtr(degrees, -abs(mean) / math.sqrt(variance)))
            for variance, degrees in ((self.seed, self.seed_degrees), (self.class_, self.class_degrees))
            if variance
        ]
        low = max(single)

        def excess(p: float) -> float:
            return self.half_width(1 - p) - abs(mean)

        if low < SMALLEST_P or excess(low) <= 0:
            return low
        return float(brentq(excess, low, 1.0 - 1e-12, xtol=1e-14, rtol=1e-10))


class VarianceParts(NamedTuple):
    """Variance of a single score between seeds, between classes, and of what is left: σ_s², σ_c², σ_e²."""

    seed: float
    class_: float
    residual: float


@dataclass(frozen=True)
class TwoWayInterval:
    """mean ± h, of one row or of the difference of two.

    terms     v_s, v_c and v_e; NaN where one seed leaves them unknown
    estimand  population of the interval: new seeds and new classes, or new seeds on these classes
    pairing   how the seeds of two rows were matched; None for one row
    seeds     number of seeds; of both rows where their seeds differ; empty for rows without seeds
    parts     variances of a single score, from which `project_interval` predicts those of other seeds and classes
    pool      what other rows add to the estimate of v_s
    """

    mean: float
    terms: VarianceTerms
    estimand: Estimand
    pairing: Pairing | None
    seeds: tuple[int, ...]
    classes: int
    parts: VarianceParts
    pool: SeedPool = ALONE
    confidence: float = 0.95

    @property
    def variance(self) -> float:
        """V, the variance of the mean; NaN where one seed leaves it unknown."""
        return self.terms.variance

    @property
    def degrees_of_freedom(self) -> float:
        """Satterthwaite's, of V."""
        return self.terms.degrees_of_freedom

    @property
    def half_width(self) -> float:
        """Half width h."""
        return self.terms.half_width(self.confidence)

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
        return math.nan if self.seeds_unknown else self.terms.p_value(self.mean)

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
    a: ClassScores,
    b: ClassScores,
    *,
    estimand: Estimand = NEW_CLASSES,
    confidence: float = 0.95,
    pooled: tuple[PooledSeeds | None, PooledSeeds | None] = (None, None),
) -> TwoWayInterval:
    """The interval of the score of `a` minus that of `b`, on the same classes.

    d_sc is the difference of a seed that both have, where they have the same, or that of a seed and a row without
    seeds. Seeds that differ are independent: the terms v_s and v_e of both rows add up, with Welch's ν_s. `pooled` are
    the spreads of the rows that each is like (`pooling`).
    """
    paired = pair_rows(a, b)
    spreads: tuple[SeedSpread | None, ...]
    if paired.pairing == "same seeds":
        spreads = (pooled[0].difference if pooled[0] is not None and pooled[0] is pooled[1] else None,)
    else:
        with_seeds = [one for row, one in zip((a, b), pooled, strict=True) if row.seeds is not None]
        spreads = tuple(None if one is None else one.row for one in with_seeds)
    return _interval(paired.groups, paired.difference, a.weights, paired.pairing, estimand, confidence, spreads)


def combine_terms(groups: Sequence[SeedTerms], v_c: float, classes: int) -> VarianceTerms:
    """The terms of V from independent sets of seeds and the class term; ν_s of several sets is Welch's."""
    v_s, v_e = sum(group.seed for group in groups), sum(group.residual for group in groups)
    spread = sum(group.seed**2 / group.pool.degrees(group.n) for group in groups)
    return VarianceTerms(v_s, v_s**2 / spread if spread else math.inf, v_c, classes - 1.0, v_e)


def _interval(
    seed_groups: Sequence[Floats],
    by_class: Floats,
    weights: Floats,
    pairing: Pairing | None,
    estimand: Estimand,
    confidence: float,
    spreads: Sequence[SeedSpread | None] = (),
) -> TwoWayInterval:
    """From independent sets of seeds, (n_g, C) each, and the class means, (C,)."""
    check_confidence(confidence)
    seeds, classes = tuple(map(len, seed_groups)), len(weights)
    mean = float(weights @ by_class)
    # A single seed has no spread to add; its noise is part of the class term.
    groups = [
        _seed_terms(scores, weights, spread)
        for scores, spread in zip(seed_groups, spreads or [None] * len(seeds), strict=True)
        if len(scores) > 1
    ]
    if estimand == THESE_CLASSES:
        terms = combine_terms([group._replace(residual=0.0) for group in groups], 0.0, classes)
        parts = VarianceParts(sum(group.n * group.seed for group in groups), 0.0, 0.0)
        if 1 in seeds:
            terms = VarianceTerms(*[math.nan] * 5)
    elif estimand == NEW_CLASSES:
        if classes < 2:
            raise EquimetricError(f"one class says nothing about new ones; use the estimand {THESE_CLASSES!r}")
        v_c = float((classes * weights * (by_class - mean)).var(ddof=1)) / classes
        terms = combine_terms(groups, v_c, classes)
        parts = _variance_parts(groups, v_c, classes)
    else:
        raise EquimetricError(f"the estimand is {NEW_CLASSES!r} or {THESE_CLASSES!r}, not {estimand!r}")
    pool = min((group.pool for group in groups), default=ALONE)
    return TwoWayInterval(mean, terms, estimand, pairing, seeds, classes, parts, pool, confidence)


def _seed_terms(scores: Floats, weights: Floats, spread: SeedSpread | None) -> SeedTerms:
    """v_s and v_e of (n, C) scores with n > 1."""
    n, classes = scores.shape
    z = classes * weights * (scores - (scores @ weights).mean())
    rows, columns = z.mean(axis=1, keepdims=True), z.mean(axis=0, keepdims=True)
    residual = z - rows - columns + z.mean()
    v_e = float(np.square(residual).sum()) / ((n - 1) * max(classes - 1, 1) * n * classes)
    variance = float(rows.var(ddof=1))
    if spread is None:
        return SeedTerms(variance / n, v_e, n)
    return SeedTerms(spread.draw(variance, n) / n, v_e, n, spread.pool)


def _variance_parts(groups: Sequence[SeedTerms], v_c: float, classes: int) -> VarianceParts:
    """Expected mean squares solved for the variances, not below 0."""
    seed = sum(group.n * max(group.seed - group.residual, 0.0) for group in groups)
    residual = sum(group.n * classes * group.residual for group in groups)
    v_e = sum(group.residual for group in groups)
    return VarianceParts(seed, classes * max(v_c - v_e, 0.0), residual)
