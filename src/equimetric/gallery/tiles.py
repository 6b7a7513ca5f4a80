"""Tiles of products of some queries with some items: of int8 codes, or of float32 vectors.

Either way the affinity q·x + shift(x) of every pair lies within step · tile ± error, so that a scan may drop what is
certainly too far and leaves the rest to exact scores.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.gallery.array_files import forget_pages
from equimetric.gallery.codes import ItemQuantizer, encode_queries
from equimetric.gallery.kernel import BFLOAT16_ERROR, FULL, multiply_codes, multiply_codes_rounded, multiply_floats
from equimetric.ops.blocks import disable_reduced_precision

__all__ = ["CodedItems", "FloatItems", "TileProducts"]

ROUNDING = 1e-6
"""Relative error bound of everything but the products: float32 shifts, unit lengths, scores."""
EPSILON = 2.0**-24
BLOCK = 1024
"""Items per stored largest residual."""
SMALL_BATCH = 16
"""Queries that are multiplied as columns: libraries are slow where the first factor has few rows."""


class TileProducts(ABC):
    """Products of fixed queries with items.

    step   (Q,) affinity of 1 in a tile
    slack  (Q,) part of the error that is the same for all items
    """

    step: NDArray[np.float64]
    slack: NDArray[np.float64]

    @abstractmethod
    def tile(self, first: int, last: int) -> Tensor:
        """(Q, last − first) products with these items, their shifts added."""

    @abstractmethod
    def error(self, first: int, last: int) -> NDArray[np.float64]:
        """(Q,) bound of |step · tile − affinity| for these items."""


@dataclass(frozen=True)
class CodedItems:
    """Items as int8 codes: a quarter of the memory to read.

    codes      (N, C) int8, mapped
    residuals  (N,) float32
    shifts     (N,) float32, or none
    quantizer     scale, balance, largest length and shift
    """

    codes: NDArray[np.int8]
    residuals: NDArray[np.float32]
    shifts: NDArray[np.float32] | None
    quantizer: ItemQuantizer

    def products(self, queries: Tensor, max_code: int = FULL) -> "CodedProducts":
        """Products with queries (Q, C), as codes up to `max_code`."""
        return CodedProducts(self, queries, max_code)

    def rounded_products(self, query: Tensor) -> "RoundedProducts":
        """Rounded products with one query (1, C)."""
        return RoundedProducts(self, query, FULL)

    @cached_property
    def tensor(self) -> Tensor:
        """The codes as a tensor of the same memory."""
        return torch.from_numpy(self.codes)

    @cached_property
    def block_residuals(self) -> NDArray[np.float32]:
        """The largest residual of every BLOCK items."""
        largest: NDArray[np.float32] = np.maximum.reduceat(self.residuals, np.arange(0, len(self.residuals), BLOCK))
        forget_pages(self.residuals)
        return largest


class CodedProducts(TileProducts):
    """Integer products; a shift is added as a whole number of steps."""

    def __init__(self, items: CodedItems, queries: Tensor, max_code: int) -> None:
        self.items, self.max_code = items, max_code
        self.queries = encode_queries(queries, items.quantizer, max_code)
        self.step = self.queries.step
        self.slack = rounding_error(self.queries.length, items.quantizer)
        if items.shifts is not None:
            # One step for the rounding of a shift.
            self.slack = self.slack + self.step

    def tile(self, first: int, last: int) -> Tensor:
        """(Q, last − first) int32."""
        tile = multiply_codes(self.queries.codes, self.items.tensor[first:last], self.max_code)
        if self.items.shifts is not None:
            shifts = np.rint(self.items.shifts[first:last].astype(np.float64) / float(self.step[0]))
            tile += torch.from_numpy(shifts).int()
        return tile

    def error(self, first: int, last: int) -> NDArray[np.float64]:
        """From the largest residual of these items, and of those that share a block with them."""
        return self.queries.error(self.items.quantizer, self._largest_residual(first, last)) + self.slack

    def _largest_residual(self, first: int, last: int) -> float:
        return float(self.items.block_residuals[first // BLOCK : -(-last // BLOCK)].max())


class RoundedProducts(CodedProducts):
    """Products of the codes of one query in float32, rounded to bfloat16."""

    def tile(self, first: int, last: int) -> Tensor:
        """(1, last − first) float32."""
        tile = multiply_codes_rounded(self.queries.codes, self.items.tensor[first:last])
        if self.items.shifts is not None:
            tile += torch.from_numpy(self.items.shifts[first:last] / self.step.astype(np.float32))
        return tile

    def error(self, first: int, last: int) -> NDArray[np.float64]:
        """The error of codes plus that of rounding: q̂·x̂ is at most ‖q̂‖ ‖x̂‖."""
        largest = self._largest_residual(first, last)
        product = (self.queries.length + self.queries.residual) * (self.items.quantizer.length + largest)
        rounding = BFLOAT16_ERROR + 2 * self.queries.codes.shape[1] * EPSILON
        return self.queries.error(self.items.quantizer, largest) + self.slack + rounding * product


@dataclass(frozen=True)
class FloatItems:
    """Items as float32 vectors (N, E), mapped, of which the first C columns are multiplied."""

    vectors: NDArray[np.float32]
    shifts: NDArray[np.float32] | None
    quantizer: ItemQuantizer

    def products(self, queries: Tensor) -> "FloatProducts":
        """Products with queries (Q, C)."""
        return FloatProducts(self, queries)


class FloatProducts(TileProducts):
    """Products of float32, whose rounding errors are bounded."""

    def __init__(self, items: FloatItems, queries: Tensor) -> None:
        self.items = items
        self.queries = queries.float()
        norms, columns = queries.norm(dim=1).numpy(), queries.shape[1]
        # |fl(q·x) − q·x| ≤ C ε |q|·|x|, in any order of summation; 2 for the rounding of q and of the sum with a shift.
        product = (columns + 2) * EPSILON * norms * _unbalanced_length(items.quantizer)
        self.step = np.ones(len(queries))
        self.slack = 1.01 * product + rounding_error(norms, items.quantizer)

    def tile(self, first: int, last: int) -> Tensor:
        """(Q, last − first) float32."""
        vectors = self.items.vectors[first:last, : self.queries.shape[1]]
        tile = self._multiply(vectors)
        if self.items.shifts is not None:
            tile += torch.from_numpy(self.items.shifts[first:last])
        return tile

    def _multiply(self, vectors: NDArray[np.float32]) -> Tensor:
        if len(self.queries) == 1:
            return multiply_floats(self.queries[0].numpy(), vectors)
        with disable_reduced_precision(torch.device("cpu")):
            if len(self.queries) < SMALL_BATCH:
                return torch.mm(torch.from_numpy(vectors), self.queries.T).T.contiguous()
            return torch.mm(self.queries, torch.from_numpy(vectors).T)

    def error(self, first: int, last: int) -> NDArray[np.float64]:  # noqa: ARG002  (the same for all items)
        """The bound of rounding."""
        return self.slack


def rounding_error(norms: NDArray[np.float64], quantizer: ItemQuantizer) -> NDArray[np.float64]:
    """(Q,) error of everything but the products, for queries of these norms."""
    return ROUNDING * (norms * quantizer.length + norms**2 + quantizer.shift)


def _unbalanced_length(quantizer: ItemQuantizer) -> float:
    """Largest ‖x‖ before balancing, which may have made vectors shorter."""
    return quantizer.length / min(1.0, quantizer.balance)
