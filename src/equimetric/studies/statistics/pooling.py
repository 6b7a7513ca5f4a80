"""The spread over seeds, estimated over all rows that are alike.

With three seeds a row's own estimate has two degrees of freedom: it jumps from study to study, and intervals with it.
The methods of a study are trained alike, so their spreads are alike, though not equal. A variance over seeds s² with
d = n − 1 degrees of freedom is therefore drawn towards the mean v̄ of all rows, as if v̄ had been seen with d₀ = 4
degrees of freedom (Smyth, 2004):

    v = (d₀ v̄ + d s²) / (d₀ + d),   ν = min(d₀ + d, degrees of freedom of v̄)

v̄ of differences is 2 MS, with the mean square MS of the interaction of k rows and n seeds and its (n − 1)(k − 1)
degrees of freedom; that of single rows is (MS₁ + (k − 1) MS)/k, with MS₁ = k · var_s(mean over rows). It takes three
rows: of two, v̄ is their own s².
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from equimetric.studies.statistics.class_scores import ClassScores

__all__ = ["PRIOR_DEGREES", "PooledSeeds", "SeedPool", "SeedSpread", "pool_seeds"]

PRIOR_DEGREES = 4.0
"""d₀: the least that fits how much the spreads of methods differ in recorded studies (`benchmarks/verdicts.py`)."""

MIN_ROWS = 3


class SeedPool(NamedTuple):
    """What other rows add to the estimate of a variance over seeds; by default nothing.

    prior  d₀, the degrees of freedom that their mean variance counts for
    share  degrees of freedom of that mean for each one of a single row
    """

    prior: float = 0.0
    share: float = 1.0

    def degrees(self, n: int) -> float:
        """ν with n seeds."""
        return min(self.prior + n - 1, self.share * (n - 1))


class SeedSpread(NamedTuple):
    """v̄, the mean variance over seeds of rows or of their differences, and its degrees of freedom by one of a row's."""

    variance: float
    share: float

    def draw(self, variance: float, n: int) -> float:
        """v: a variance with n − 1 degrees of freedom drawn towards v̄."""
        return (PRIOR_DEGREES * self.variance + (n - 1) * variance) / (PRIOR_DEGREES + n - 1)

    @property
    def pool(self) -> SeedPool:
        """How v counts."""
        return SeedPool(PRIOR_DEGREES, self.share)


@dataclass(frozen=True)
class PooledSeeds:
    """The spreads of rows with the same seeds: of a single row, and of the difference of two."""

    row: SeedSpread
    difference: SeedSpread


def pool_seeds(rows: Mapping[str, ClassScores], alike: Iterable[str]) -> dict[str, PooledSeeds]:
    """Row → the spreads of the rows that are `alike` and have the same seeds, where these are three or more."""
    groups: dict[frozenset[Hashable], list[str]] = {}
    for name in alike:
        seeds = rows[name].seeds if name in rows else None
        if seeds is not None and len(seeds) > 1:
            groups.setdefault(frozenset(seeds), []).append(name)
    return {
        name: pooled
        for names in groups.values()
        if len(names) >= MIN_ROWS
        for pooled in [_pool([rows[name] for name in names])]
        for name in names
    }


def _pool(rows: list[ClassScores]) -> PooledSeeds:
    """From k rows with the same n seeds."""
    order = rows[0].seeds
    assert order is not None
    scores = np.stack([row.select(seeds=order).seed_means for row in rows])
    k, n = scores.shape
    by_seed = scores.mean(axis=0)
    residual = scores - by_seed - scores.mean(axis=1, keepdims=True) + scores.mean()
    interaction = float(np.square(residual).sum()) / ((n - 1) * (k - 1))
    common = k * float(by_seed.var(ddof=1))
    total = common + (k - 1) * interaction
    share = total**2 / (common**2 + (k - 1) * interaction**2) if total else 1.0
    return PooledSeeds(SeedSpread(total / k, share), SeedSpread(2 * interaction, k - 1.0))
