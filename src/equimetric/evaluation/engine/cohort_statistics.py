"""How crowded the neighbourhoods of vectors are: their largest cosines to a cohort of other vectors."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.ops.blocks import disable_reduced_precision, slices

__all__ = ["CohortStatistics", "cohort_statistics"]

BLOCK_BYTES = 2**22
"""Cosines to the cohort in memory at once: they should stay in the cache until the largest are found."""
MIN_ROWS = 64
"""With fewer rows a matrix product is bound by memory."""


@dataclass(frozen=True, eq=False)
class CohortStatistics:
    """Mean m(x) and standard deviation s(x) of the K largest cosines of each vector to a cohort, (N,) float64."""

    mean: Tensor
    std: Tensor

    def select(self, rows: Tensor) -> "CohortStatistics":
        """The statistics of some of the vectors."""
        return CohortStatistics(self.mean[rows], self.std[rows])


def cohort_statistics(
    unit: Tensor, cohort: Tensor, nearest: int, own_rows: tuple[Tensor, Tensor] | None = None
) -> CohortStatistics:
    """The statistics of N unit vectors (N, D) among C cohort vectors (C, D), by the `nearest` of them.

    own  the rows of the cohort, from (N,) up to (N,), that do not count for each vector; at least one must be left
    """
    nearest = min(nearest, len(cohort))
    largest = unit.new_empty(len(unit), nearest)
    step = max(MIN_ROWS, BLOCK_BYTES // (len(cohort) * unit.element_size()))
    buffer = unit.new_empty(min(step, len(unit)), len(cohort))
    with torch.no_grad(), disable_reduced_precision(unit.device):
        for rows in slices(len(unit), step):
            cosine = torch.mm(unit[rows], cohort.T, out=buffer[: rows.stop - rows.start])
            if own_rows is not None:
                _mask_ranges(cosine, own_rows[0][rows], own_rows[1][rows])
            largest[rows] = _largest_unordered(cosine, nearest)
    mean, std = _moments(largest)
    _equate_duplicates(unit, own_rows, mean, std)
    return CohortStatistics(mean, std)


def _largest_unordered(values: Tensor, count: int) -> Tensor:
    """The `count` largest values of each row, in any order, (rows, count); may reorder the values."""
    if values.device.type != "cpu":
        return values.topk(count, dim=1, sorted=False).values
    # In place, and several times faster than `topk`.
    array = values.numpy()
    array.partition(array.shape[1] - count, axis=1)
    return values[:, -count:]


def _moments(largest: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (dividing by their number) of the finite values of each row, (rows,) float64."""
    values, excluded = largest.double(), largest == -torch.inf
    count = largest.shape[1] - excluded.sum(dim=1)
    mean = values.masked_fill_(excluded, 0).sum(dim=1) / count
    squares = values.sub_(mean[:, None]).square_().masked_fill_(excluded, 0)
    return mean, (squares.sum(dim=1) / count).sqrt_()


def _mask_ranges(cosine: Tensor, start: Tensor, stop: Tensor) -> None:
    """Set the columns from start to stop of each row to −∞."""
    counts = stop - start
    row = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    within = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    cosine[row, start[row] + within] = -torch.inf


def _equate_duplicates(unit: Tensor, own_rows: tuple[Tensor, Tensor] | None, mean: Tensor, std: Tensor) -> None:
    """Give equal vectors equal moments: the last bits of a product depend on the row, and would undo their ties."""
    vectors = unit.cpu().numpy()
    keys = _hash_rows(vectors)
    if own_rows is not None:
        keys = keys * 3 + own_rows[0].cpu().numpy().astype(np.uint64)
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) == len(keys):
        return
    earlier = first[group]
    later = np.flatnonzero(earlier != np.arange(len(keys)))
    later = later[(vectors[later] == vectors[earlier[later]]).all(axis=1)]
    later_rows, first_rows = (torch.from_numpy(rows).to(mean.device) for rows in (later, earlier[later]))
    for moments in (mean, std):
        moments[later_rows] = moments[first_rows]


def _hash_rows(vectors: NDArray[np.floating]) -> NDArray[np.uint64]:
    """(N,) hashes of the bits of each row: Σ bits · odd number, modulo 2^64."""
    bits = np.ascontiguousarray(vectors).view(np.uint32 if vectors.dtype.itemsize == 4 else np.uint64)
    factors = np.random.default_rng(0).integers(0, 2**63, bits.shape[1], dtype=np.uint64) * 2 + 1
    keys = np.empty(len(bits), np.uint64)
    for rows in slices(len(bits), max(1, BLOCK_BYTES // (8 * bits.shape[1]))):
        keys[rows] = (bits[rows] * factors).sum(axis=1, dtype=np.uint64)
    return keys
