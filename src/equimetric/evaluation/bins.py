"""Bins of pair distances: where they lie, by a survey of some rows before the scan, and what was counted in them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.comparison import Comparison
from equimetric.evaluation.exact import slices
from equimetric.evaluation.inputs import LabelledSets
from equimetric.evaluation.pair_counts import Floats, Integers
from equimetric.evaluation.scan import Tile
from equimetric.seeding import derive_seed

__all__ = [
    "BINS",
    "DEFAULT_FAR",
    "Grid",
    "Histogram",
    "Survey",
    "closeness",
    "closeness_of_tile",
    "distance",
    "survey_of",
]

BINS = 2**14 + 1
"""Bins of the whole range; the last one holds the pairs kept one by one."""
CLASS_TABLE_BYTES = 3 * 2**25
MOST_CLASS_EDGES, LEAST_CLASS_EDGES = 2**12, 2**9
CLOSEST_KEPT = 2**22
CLOSEST_SHARE = 1.5e-3
"""Share of the negative pairs kept one by one: false accept rates up to 1e-3, should the survey be wrong by a third."""
CLASSES_AT_A_TIME = 1024
SURVEYED_PAIRS = 2**23
SURVEYED_ROWS = (16, 512)
SURVEY_MARGIN = 1.5
"""By how much the survey's false accept rates are taken larger and smaller when the range of interest is bracketed."""
DEFAULT_FAR = (1e-2, 1e-1)
"""The false accept rates between which consistency is measured if nothing else is said."""


@dataclass(frozen=True)
class Grid:
    """Bins of equal width in closeness (larger is closer, see `_closeness`); the first and last reach on without end.

    low    where the first bin starts
    scale  bins per unit
    """

    low: float
    scale: float

    def bins(self, close: Tensor) -> Tensor:
        """⌊(closeness − low)·scale⌋ as 32-bit integers; rising with closeness whatever the rounding."""
        return close.mul(self.scale).sub_(self.low * self.scale).clamp_(0, BINS - 1).int()

    def edges(self, bins: Integers) -> Floats:
        """Lower edges of some bins."""
        return self.low + bins / self.scale

    def some_bins(self, count: int, interest: tuple[float, float]) -> Integers:
        """At most about `count` bins, ascending, first and last included: most of them in the range of interest."""
        inside = (np.array(interest) - self.low) * self.scale
        first, last = np.clip([math.floor(inside[0]), math.ceil(inside[1]) + 1], 0, BINS - 1).astype(np.int64)
        finest = np.linspace(first, last, min(last - first + 1, count - count // 8))
        elsewhere = np.linspace(0, BINS - 1, count // 8)
        return np.unique(np.concatenate([finest, elsewhere]).astype(np.int64))


@dataclass(frozen=True)
class Survey:
    """Where the bins should lie: those of negative pairs up to a cut, those of positive pairs all over.

    interest  two closenesses between which consistency is measured
    farthest  no threshold is of interest beyond: negative pairs need not be looked at up to this closeness
    """

    negative: Grid
    positive: Grid
    interest: tuple[float, float]
    farthest: float = -math.inf


class Histogram:
    """Counts of pairs in the bins of a grid, and for every class between some of their edges.

    Every pair is counted twice, once from each of its ends: for the class at that end.
    """

    def __init__(
        self, grid: Grid, interest: tuple[float, float], classes: int, most_pairs: int, device: torch.device
    ) -> None:
        """`most_pairs`, more than any class has, decides how wide the counts must be."""
        self.grid = grid
        count_type = torch.int32 if most_pairs < 2**31 else torch.int64
        edges = CLASS_TABLE_BYTES // (count_type.itemsize * classes)
        edge_bins = grid.some_bins(min(max(edges, LEAST_CLASS_EDGES), MOST_CLASS_EDGES), interest)
        self.closeness, self.edge_closeness = grid.edges(np.arange(BINS)), grid.edges(edge_bins)
        self.bins = torch.zeros(BINS, dtype=torch.int64, device=device)
        self.table = torch.zeros(classes, len(edge_bins), dtype=count_type, device=device)
        index_type = torch.int32 if self.table.numel() < 2**31 else torch.int64
        place_of_bin = np.searchsorted(edge_bins, np.arange(BINS), "right") - 1
        self._place_of_bin = torch.from_numpy(place_of_bin).to(device, index_type)
        self._start_of_class = torch.arange(classes, device=device).mul_(len(edge_bins)).to(index_type)

    def counts_of(self, classes: Tensor) -> Tensor:
        """Where in the table the counts of these classes begin."""
        return self._start_of_class[classes]

    def count(self, bins: Tensor, ends: Sequence[Tensor], times: int = 1) -> None:
        """Count pairs in these bins, of any shape, for the classes at one or both ends.

        An end is given by `counts_of` its classes, in a shape that expands to that of the bins.
        """
        self.bins.add_(torch.bincount(bins.view(-1), minlength=BINS), alpha=times * len(ends))
        place = self._place_of_bin.index_select(0, bins.view(-1)).view_as(bins)
        one = self.table.new_tensor(times).expand(bins.numel())
        for counts in ends:
            self.table.view(-1).index_add_(0, (place + counts).view(-1), one)

    def finish(self, pairs_of_class: Tensor) -> None:
        """Sum up: pairs at least as close as the lower edge of each bin, each once, and of each class, as counted.

        The first bin holds what remains of all pairs: those of each class, (C,), seen from their end in it.
        """
        self.beyond_bin = _from_the_top(self.bins.cpu().numpy().astype(np.float64)) / 2
        self.beyond_edge = _from_the_top(self.table.cpu().numpy())
        self.beyond_bin[0] = int(pairs_of_class.sum()) / 2
        self.beyond_edge[:, 0] = pairs_of_class.cpu().numpy()
        del self.bins, self.table

    def within(self, close: Floats) -> Floats:
        """Pairs at least that close, (G,)."""
        return _interpolated(self.closeness, self.beyond_bin, close)

    def within_of_classes(self, close: Floats, classes: slice) -> Floats:
        """The same for each of some classes, (C, G)."""
        return _interpolated(self.edge_closeness, self.beyond_edge[classes], close)

    def possible_error(self, close: Floats) -> float:
        """The largest share of a class's pairs between two of its edges that have one of the closenesses in between."""
        edges = self.edge_closeness
        between = close[(close < edges[-1]) & ~np.isin(close, edges)]
        place = np.unique(np.clip(np.searchsorted(edges, between, "right") - 1, 0, len(edges) - 2))
        if not len(place):
            return 0.0
        largest = 0.0
        for some in slices(len(self.beyond_edge), CLASSES_AT_A_TIME):
            beyond = self.beyond_edge[some]
            content = beyond[:, place] - beyond[:, place + 1]
            largest = max(largest, float((content.max(axis=1) / np.maximum(beyond[:, 0], 1)).max()))
        return largest


def _from_the_top(counts: NDArray[Any]) -> NDArray[Any]:
    """Counts of bins → counts of each bin and all behind it, along the last axis and in place."""
    reverse = counts[..., ::-1]
    np.cumsum(reverse, axis=-1, out=reverse)
    return counts


def _interpolated(edges: Floats, beyond: NDArray[Any], close: Floats) -> Floats:
    """Pairs at least as close as each of G closenesses, (…, G), from those beyond each edge; linear in between."""
    place = np.clip(np.searchsorted(edges, close, "right") - 1, 0, len(edges) - 2)
    share = np.clip((edges[place + 1] - close) / (edges[place + 1] - edges[place]), 0, 1)
    upper: Floats = beyond[..., place + 1].astype(np.float64)
    return upper + share * (beyond[..., place] - upper)


def closeness_of_tile(tile: Tile) -> Tensor:
    """What falls as the distance rises, of all pairs alike: the similarity, where it is that for all rows alike."""
    return -tile.distance() if tile.comparison.geometry == "euclidean" else tile.similarity


def closeness(distance: Floats, geometry: str, dimension: int) -> Floats:
    """The closeness at which a pair has this distance; between two Hamming distances, where no pair lies."""
    if geometry == "cosine":
        return np.where(distance < 0, np.inf, 1 - np.square(distance) / 2)
    if geometry == "hamming":
        return dimension - 2 * np.floor(distance) - 1
    return -distance


def distance(closeness: Floats, geometry: str, dimension: int) -> Floats:
    """The distance of a pair of this closeness."""
    if geometry == "cosine":
        return np.sqrt(np.maximum(2 - 2 * closeness, 0))
    if geometry == "hamming":
        return (dimension - closeness) / 2
    return -closeness


def survey_of(
    sets: LabelledSets, comparison: Comparison, options: Mapping[str, Any], *, only_interest: bool = False
) -> Survey:
    """Look at the pairs of some random rows to see where the bins should lie.

    With `only_interest` those of negative pairs begin at the farthest threshold that consistency reads.
    """
    gallery = len(sets.gallery_classes)
    few, many = SURVEYED_ROWS
    count = min(len(sets.queries), max(few, min(many, SURVEYED_PAIRS // gallery)))
    generator = torch.Generator().manual_seed(derive_seed(0, "survey of distances"))
    rows = torch.randperm(len(sets.queries), generator=generator)[:count].to(sets.queries.device)
    close = closeness_of_tile(Tile(comparison, rows, comparison.similarity(rows)))
    same = sets.query_classes[rows, None] == sets.gallery_classes
    of_both = (close.masked_fill(other, -torch.inf).view(-1).cpu().numpy() for other in (~same, same))
    positive, negative = (some[some > -np.inf] for some in of_both)
    del close, same
    if not len(negative):
        raise EquimetricError("there is no negative pair; thresholds need pairs of one class and of two classes")

    pairs = len(sets.queries) * gallery // (2 if sets.gallery is None else 1)
    smallest, largest = options.get("calibration_far") or DEFAULT_FAR
    closest = max(CLOSEST_SHARE, options.get("closest_share", 0.0))
    shares = min(closest, CLOSEST_KEPT / pairs), smallest / SURVEY_MARGIN, min(1.0, largest * SURVEY_MARGIN)
    cut, *interest = _upper_quantiles(negative, *shares)
    if options.get("calibration_range") is not None:
        given = np.asarray(options["calibration_range"], np.float64)
        interest = closeness(given, sets.geometry, sets.queries.shape[1]).tolist()
    low, high = float(negative.min()), float(max(positive.max(initial=cut), negative.max()))
    if sets.geometry == "hamming":
        # One bin for each value D − 2h, its edges between the values: nothing is interpolated.
        dimension = sets.queries.shape[1]
        below_cut, all_over = (Grid(top - 1 - 2 * (BINS - 1), 0.5) for top in (cut, dimension))
        return Survey(below_cut, all_over, (-dimension, dimension))
    low -= 0.1 * (high - low)
    nearest, farthest = interest
    if only_interest and low < farthest < cut:
        # Somewhat farther, for the first bin holds all that is not looked at.
        below = _grid(farthest - 0.01 * (cut - farthest), cut)
        return Survey(below, _grid(low, high), (farthest, nearest), below.low)
    return Survey(_grid(low, cut), _grid(low, high), (farthest, nearest))


def _grid(low: float, high: float) -> Grid:
    """Bins from low to high; not narrower than the rounding of float32, or they would be bins of noise."""
    rounding = float(np.finfo(np.float32).eps) * max(abs(low), abs(high), 1e-30)
    width = max((high - low) / (BINS - 1), 4 * rounding)
    return Grid(float(np.float32(low)), float(np.float32(1 / width)))


def _upper_quantiles(values: NDArray[Any], *shares: float) -> list[float]:
    """The values that these shares of all values exceed; the values are put in another order."""
    places = [min(len(values) - 1, max(0, len(values) - 1 - int(share * len(values)))) for share in shares]
    values.partition(places)
    return [float(values[place]) for place in places]
