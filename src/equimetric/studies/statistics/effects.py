"""Effect size: a difference in the metric's unit, in seed standard deviations, and in percent."""

import math
from dataclasses import dataclass

import numpy as np

from equimetric.studies.statistics.class_scores import ClassScores

__all__ = ["EffectSize", "effect_size"]


@dataclass(frozen=True)
class EffectSize:
    """A difference of two rows and the standard deviation over seeds to compare it with.

    deviation  √((s_a² + s_b²)/2) of the scores of the seeds; that of one row where the other has no seeds; NaN where
               no row has two seeds
    """

    difference: float
    deviation: float

    @property
    def standardized(self) -> float:
        """The difference in standard deviations over seeds (Cohen's d); infinite without spread."""
        if self.deviation == 0:
            return math.copysign(math.inf, self.difference) if self.difference else 0.0
        return self.difference / self.deviation

    def points(self, scale: float = 100.0) -> float:
        """The difference in points: percentage points of a metric between 0 and 1."""
        return scale * self.difference


def effect_size(a: ClassScores, b: ClassScores) -> EffectSize:
    """The score of `a` minus that of `b`, over all their seeds."""
    first, second = a.seed_means, b.seed_means
    variances = [float(scores.var(ddof=1)) for scores in (first, second) if len(scores) > 1]
    deviation = math.sqrt(float(np.mean(variances))) if variances else math.nan
    return EffectSize(float(first.mean() - second.mean()), deviation)
