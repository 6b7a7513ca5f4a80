"""Bootstrap intervals of metrics, by resampling classes.

Queries of one class succeed and fail together, so classes are drawn, not queries: with replacement, as many as there
are, each with all its queries. A metric is then a function of how often each class is drawn, its weight w_c, and all
draws are computed together as matrix products. What depends on all classes at once stays fixed: the gallery that a
query is ranked in, the threshold of `tar@far=…`, the distance between classes in `pi_ratio`.

A pair of two classes counts w_u·w_v times, approximated by w_u + w_v − 1: `auc`, `eer`, `far@…`, `uniformity` and
`pi_inter` follow from values of single classes, to first order in how often these are drawn; so does `spectral_decay`,
from the lengths of classes along the singular directions. `nmi`, `ami` and `f1` keep the clusters that all points
formed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.resampling.class_statistics import WEIGHT_CHUNK_SIZE, ClassStatistic, class_statistic
from equimetric.evaluation.result import Evaluation
from equimetric.intervals import check_confidence
from equimetric.ops.blocks import slices
from equimetric.seeding import derive_seed

__all__ = ["BootstrapInterval", "bootstrap_interval", "check_resampling", "percentile_interval", "resample_both"]


@dataclass(frozen=True)
class BootstrapInterval:
    """A metric with the interval that holds the given share of its resampled values.

    value           the metric itself
    low, high       ends of the percentile interval
    standard_error  standard deviation of the resampled values
    classes         number of classes, and of classes in each draw
    draws           number of draws
    """

    value: float
    low: float
    high: float
    standard_error: float
    confidence: float
    classes: int
    draws: int


def bootstrap_interval(
    evaluation: Evaluation, name: str, *, confidence: float = 0.95, draws: int = 2000, seed: int = 0
) -> BootstrapInterval:
    """The percentile interval of one metric under resampling of classes."""
    check_resampling(confidence, draws)
    statistic = class_statistic(evaluation, name)
    values = resample_both(statistic, statistic, draws, seed)[0]
    low, high = percentile_interval(values, confidence)
    error, classes = float(values.std(ddof=1)), len(statistic.classes)
    return BootstrapInterval(evaluation[name], low, high, error, confidence, classes, draws)


def resample_both(first: ClassStatistic, second: ClassStatistic, draws: int, seed: int) -> tuple[Floats, Floats]:
    """Both statistics under the same draws, (draws,) each."""
    values = np.empty((2, draws))
    generator = np.random.default_rng(derive_seed(seed, "bootstrap"))
    for rows, weights in _draw_weights(len(first.classes), draws, generator):
        values[0, rows] = first.of_weights(weights)
        values[1, rows] = values[0, rows] if second is first else second.of_weights(weights)
    return values[0], values[1]


def _draw_weights(classes: int, draws: int, generator: np.random.Generator) -> Iterator[tuple[slice, Floats]]:
    """How often each class is among `classes` drawn with replacement: blocks (B, classes) of `draws` in all."""
    for block in slices(draws, max(1, WEIGHT_CHUNK_SIZE // classes)):
        rows = block.stop - block.start
        drawn = generator.integers(classes, size=(rows, classes)) + classes * np.arange(rows)[:, None]
        yield block, np.bincount(drawn.ravel(), minlength=rows * classes).reshape(rows, classes).astype(np.float64)


def percentile_interval(values: Floats, confidence: float) -> tuple[float, float]:
    """Ends of the central interval that holds this share of the values."""
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def check_resampling(confidence: float, draws: int) -> None:
    """Raise an error for options that give no interval."""
    check_confidence(confidence)
    if draws < 2:
        raise EquimetricError(f"draws is {draws}; an interval needs at least 2, and a few thousand to be stable")
