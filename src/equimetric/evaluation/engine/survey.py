"""Where the bins of pair distances lie: estimated from the pairs of a few rows before the scan."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.bins import BINS, Grid, closeness_at, tile_closeness
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Tile
from equimetric.seeding import derive_seed

__all__ = ["DEFAULT_FAR", "Survey", "plan_bins"]

CLOSEST_KEPT = 2**22
CLOSEST_SHARE = 1.5e-3
"""Share of the negative pairs kept singly: false accept rates up to 1e-3, even if the survey is off by a third."""
SURVEYED_PAIRS = 2**23
SURVEYED_ROWS = (16, 512)
"""Fewest and most rows; where the fewest have too many pairs, gallery items at even distances are surveyed."""
SAMPLED_OF, SAMPLE_MARGIN = 64, 1.2
SURVEY_MARGIN = 1.5
"""Factor by which the surveyed false accept rates are widened on both sides of the calibration range."""
DEFAULT_FAR = (1e-2, 1e-1)
"""False accept rates at the ends of the default calibration range."""


@dataclass(frozen=True)
class Survey:
    """The bins of negative pairs, up to a cut, and of positive pairs, over the whole range.

    fine_range         the two closenesses between which the counts of classes are finest
    calibration_range  the two closenesses between which consistency is measured
    min_closeness      negative pairs up to this closeness need not be read: no threshold lies there
    """

    negative: Grid
    positive: Grid
    fine_range: tuple[float, float]
    calibration_range: tuple[float, float]
    min_closeness: float = -math.inf


def plan_bins(
    sets: LabelledSets, matrix: SimilarityMatrix, options: Mapping[str, Any], *, range_only: bool = False
) -> Survey:
    """Place the bins by the pairs of some random rows.

    With `range_only` the bins of negative pairs begin at the farthest threshold that consistency reads.
    """
    gallery = len(sets.gallery_classes)
    min_rows, max_rows = SURVEYED_ROWS
    count = min(len(sets.queries), max(min_rows, min(max_rows, SURVEYED_PAIRS // gallery)))
    generator = torch.Generator().manual_seed(derive_seed(0, "survey of distances"))
    rows = torch.randperm(len(sets.queries), generator=generator)[:count].to(sets.queries.device)
    columns = slice(0, gallery, -(-min_rows * gallery // SURVEYED_PAIRS))
    closeness = tile_closeness(Tile(matrix, rows, matrix.similarity(rows, columns=columns))).view(-1).cpu().numpy()
    same = sets.shares_label(rows, columns).view(-1).cpu().numpy()
    positive, negative = (_drop_excluded(closeness[kind]) for kind in (same, ~same))
    del closeness, same
    if not len(negative):
        raise EquimetricError("there is no negative pair; thresholds need pairs of one class and of two classes")

    pairs = len(sets.queries) * gallery // (2 if sets.gallery is None else 1)
    smallest, largest = options.get("calibration_far") or DEFAULT_FAR
    closest = max(CLOSEST_SHARE, options.get("closest_share", 0.0))
    shares = min(closest, CLOSEST_KEPT / pairs), smallest / SURVEY_MARGIN, min(1.0, largest * SURVEY_MARGIN)
    cut, *fine_range = _upper_quantiles(negative, *shares)
    if options.get("calibration_range") is not None:
        distances = np.asarray(options["calibration_range"], np.float64)
        fine_range = closeness_at(distances, sets.geometry, sets.queries.shape[1]).tolist()
    low, high = float(negative.min()), float(max(positive.max(initial=cut), negative.max()))
    nearest, min_closeness = fine_range
    calibration_range = min_closeness, nearest
    if sets.geometry == "hamming":
        # One bin for each value D − 2h, its edges between the values: nothing is interpolated.
        dimension = sets.queries.shape[1]
        below_cut, all_over = (Grid(top - 1 - 2 * (BINS - 1), 0.5) for top in (cut, dimension))
        return Survey(below_cut, all_over, (-dimension, dimension), calibration_range)
    low -= 0.1 * (high - low)
    if range_only and low < min_closeness < cut:
        # Somewhat farther, because the first bin holds all pairs that are not read.
        below = _grid(min_closeness - 0.01 * (cut - min_closeness), cut)
        return Survey(below, _grid(low, high), calibration_range, calibration_range, below.low)
    return Survey(_grid(low, cut), _grid(low, high), calibration_range, calibration_range)


def _grid(low: float, high: float) -> Grid:
    """Bins from low to high, not narrower than the rounding error of float32."""
    rounding = float(np.finfo(np.float32).eps) * max(abs(low), abs(high), 1e-30)
    width = max((high - low) / (BINS - 1), 4 * rounding)
    return Grid(float(np.float32(low)), float(np.float32(1 / width)))


def _drop_excluded(values: NDArray[Any]) -> NDArray[Any]:
    """Remove excluded pairs, whose value is −∞."""
    return values if values.min(initial=0) > -np.inf else values[values > -np.inf]


def _upper_quantiles(values: NDArray[Any], *shares: float) -> list[float]:
    """The values that these shares of all values exceed; may reorder the values."""
    indices = [min(len(values) - 1, max(0, len(values) - 1 - int(share * len(values)))) for share in shares]
    # Those above a value that some of them suggest are enough, unless there are too few.
    sampled = np.sort(values[::SAMPLED_OF])
    above = values[values >= sampled[max(0, int(len(sampled) * (1 - SAMPLE_MARGIN * max(shares))) - 1)]]
    num_dropped = len(values) - len(above)
    if min(indices) < num_dropped:
        above, num_dropped = values, 0
    above.partition([index - num_dropped for index in indices])
    return [float(above[index - num_dropped]) for index in indices]
