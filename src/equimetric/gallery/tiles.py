"""Tiles of products of some queries with some items: of int8 codes, or of float32 vectors.

Either way the affinity q·x + shift(x) of every pair lies within unit · tile ± error, so that a scan may drop what is
certainly too far and leaves the rest to exact scores.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.gallery.codes import ItemCodes, encode_queries

__all__ = ["CodedItems", "FloatItems", "TileProducts"]

ROUNDING = 1e-6
"""Relative error of all that is computed beside the products, generously: float32 shifts, unit lengths, scores."""
EPSILON = 2.0**-24


class TileProducts(ABC):
    """Products of fixed queries with items.

    unit   (Q,) what 1 in a tile is worth
    slack  (Q,) part of the error that is the same for all items
    """

    unit: Tensor
    slack: Tensor

    @abstractmethod
    def tile(self, first: int, last: int) -> Tensor:
        """(Q, last − first) products with these items, their shifts added."""

    @abstractmethod
    def error(self, first: int, last: int) -> Tensor:
        """(Q,) how far unit · tile may be from the affinities of these items."""


@dataclass(frozen=True)
class CodedItems:
    """Items as int8 codes: a quarter of the memory to read.

    codes      (N, C) int8, mapped
    residuals  (N,) float32
    shifts     (N,) float32, or none
    common     scale, balance, largest length and shift
    """

    codes: NDArray[np.int8]
    residuals: NDArray[np.float32]
    shifts: NDArray[np.float32] | None
    common: ItemCodes

    def products(self, queries: Tensor) -> "CodedProducts":
        """Products with queries (Q, C)."""
        return CodedProducts(self, queries)


class CodedProducts(TileProducts):
    """Integer products; a shift is added as a whole number of units."""

    def __init__(self, items: CodedItems, queries: Tensor) -> None:
        self.items = items
        self.queries = encode_queries(queries, items.common)
        self.unit = self.queries.unit
        # One unit for the rounding of a shift.
        rounded = self.unit if items.shifts is not None else torch.zeros_like(self.unit)
        self.slack = rounded + rounding_error(self.queries.length, items.common)

    def tile(self, first: int, last: int) -> Tensor:
        """(Q, last − first) int32."""
        tile = torch._int_mm(self.queries.codes, torch.from_numpy(self.items.codes[first:last]).T)
        if self.items.shifts is not None:
            shifts = np.rint(self.items.shifts[first:last].astype(np.float64) / float(self.unit[0]))
            tile += torch.from_numpy(shifts).int()
        return tile

    def error(self, first: int, last: int) -> Tensor:
        """From the largest residual of these items."""
        largest = float(self.items.residuals[first:last].max())
        return self.queries.error(self.items.common, largest) + self.slack


@dataclass(frozen=True)
class FloatItems:
    """Items as float32 vectors (N, E), mapped, of which the first C columns are multiplied."""

    vectors: NDArray[np.float32]
    shifts: NDArray[np.float32] | None
    common: ItemCodes

    def products(self, queries: Tensor) -> "FloatProducts":
        """Products with queries (Q, C)."""
        return FloatProducts(self, queries)


class FloatProducts(TileProducts):
    """Products of float32, whose rounding errors are bounded."""

    def __init__(self, items: FloatItems, queries: Tensor) -> None:
        self.items = items
        self.queries = queries.float()
        length, columns = queries.norm(dim=1), queries.shape[1]
        # |fl(q·x) − q·x| ≤ C ε |q|·|x|, in any order of summation; 2 for the rounding of q and of the sum with a shift.
        product = (columns + 2) * EPSILON * length * _plain_length(items.common)
        self.unit = torch.ones(len(queries), dtype=torch.float64)
        self.slack = 1.01 * product + rounding_error(length, items.common)

    def tile(self, first: int, last: int) -> Tensor:
        """(Q, last − first) float32."""
        vectors = torch.from_numpy(self.items.vectors[first:last, : self.queries.shape[1]])
        tile = torch.mm(self.queries, vectors.T)
        if self.items.shifts is not None:
            tile += torch.from_numpy(self.items.shifts[first:last])
        return tile

    def error(self, first: int, last: int) -> Tensor:  # noqa: ARG002  (the same for all items)
        """The bound of rounding."""
        return self.slack


def rounding_error(length: Tensor, common: ItemCodes) -> Tensor:
    """(Q,) error of what is computed beside the products, for queries of this length."""
    return ROUNDING * (length * common.length + length.square() + common.shift)


def _plain_length(common: ItemCodes) -> float:
    """Largest ‖x‖ before balancing, which may have made vectors shorter."""
    return common.length / min(1.0, common.balance)
