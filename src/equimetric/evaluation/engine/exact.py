"""Inner products without rounding, so that ties are ties in any order of summation.

The last bits of a floating-point matrix product depend on the block shape, the number of threads and the column of a
vector: two identical gallery vectors may get different similarities. Where neighbours are closer than that noise, the
ranking is decided here instead, in fixed point, where every sum is exact.

A vector is split into x = coarse + fine, both integers times a power of two u near its length:

    coarse / u   26 bits: Σ coarse·coarse′ stays below 2^53 by Cauchy–Schwarz, so float64 holds it exactly
    fine / u     26 − log2 √D further bits: entries, not lengths, are bounded here, so sums may be √D larger

All four products of the parts of x and x′ are therefore exact in any order, and are added in one fixed order.
"""

import math

import torch
from torch import Tensor

from equimetric.evaluation.engine.mapped_vectors import Vectors
from equimetric.ops.blocks import slices

__all__ = ["FixedPoint", "exact_products", "exact_rows", "float64_products", "row_norms"]

COARSE_BITS = 26
MAX_UNIT_RATIO = 1.5
"""A unit is at most this many times as long as its vector."""
WORKING_BYTES = 2**22
"""Largest temporary of float64 vectors; it should stay in the cache."""


class FixedPoint:
    """Vectors (N, D) that can be read in fixed point relative to their own length; nothing is copied.

    Fixed point rounds them to about 1e-14 of their length: most float32 vectors do not change; float64 vectors that
    differ by rounding noise become equal.
    """

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        self.total_bits = 2 * COARSE_BITS - math.ceil(math.log2(vectors.shape[1]) / 2)
        self.norms = row_norms(vectors)
        self.unit = _power_of_two_near(self.norms)

    def __len__(self) -> int:
        return len(self.vectors)

    def split(self, which: Tensor | slice) -> tuple[Tensor, Tensor]:
        """(coarse, fine) of the chosen vectors, float64."""
        exact, unit = self.vectors[which].double(), self.unit[which, None]
        coarse = _round_to_bits(exact, unit, COARSE_BITS)
        return coarse, _round_to_bits(exact - coarse, unit, self.total_bits)

    @property
    def rounding(self) -> float:
        """Largest change of a vector by fixed point, relative to its length: √D entries by half a step."""
        return math.sqrt(self.vectors.shape[1]) * MAX_UNIT_RATIO * 2.0 ** -(self.total_bits + 1)

    def piece_rows(self, copies: int = 1) -> int:
        """Number of vectors that fit into one temporary as float64, `copies` times each."""
        return max(1, WORKING_BYTES // (8 * copies * self.vectors.shape[1]))


def row_norms(vectors: Vectors) -> Tensor:
    """Norms (N,) of the vectors, in float64 to avoid overflow and underflow."""
    norms = torch.empty(len(vectors), dtype=torch.float64, device=vectors.device)
    # Into one tensor: small tensors allocated between large temporaries would keep their memory from being freed.
    for rows in slices(len(vectors), max(1, WORKING_BYTES // (8 * vectors.shape[1]))):
        norms[rows] = torch.linalg.vector_norm(vectors[rows].double(), dim=1)
    return norms


def float64_products(queries: FixedPoint, gallery: FixedPoint, rows: Tensor, columns: Tensor) -> Tensor:
    """⟨q_rows[p], g_columns[p]⟩ for a list of P pairs → (P,), rounded to float64."""
    products = queries.norms.new_empty(len(rows))
    for pairs in slices(len(rows), queries.piece_rows(copies=2)):
        query, item = queries.vectors.index_select(0, rows[pairs]), gallery.vectors.index_select(0, columns[pairs])
        products[pairs] = torch.linalg.vecdot(query.double(), item.double())
    return products


def exact_products(queries: FixedPoint, gallery: FixedPoint, rows: Tensor, columns: Tensor) -> Tensor:
    """⟨q_rows[p], g_columns[p]⟩ for a list of P pairs → (P,) float64, without rounding."""
    products = queries.norms.new_empty(len(rows))
    for pairs in slices(len(rows), queries.piece_rows(copies=4)):
        coarse, fine = queries.split(rows[pairs])
        gallery_coarse, gallery_fine = gallery.split(columns[pairs])
        crossed = (coarse * gallery_fine).sum(dim=1) + (fine * gallery_coarse).sum(dim=1)
        products[pairs] = (coarse * gallery_coarse).sum(dim=1) + (crossed + (fine * gallery_fine).sum(dim=1))
    return products


def exact_rows(queries: FixedPoint, gallery: FixedPoint, rows: Tensor, columns: slice = slice(None)) -> Tensor:
    """⟨q_rows[i], g_j⟩ for a range of gallery vectors j → (rows, columns) float64; the bits of `exact_products`."""
    coarse, fine = queries.split(rows)
    first, stop, _ = columns.indices(len(gallery))
    similarity = coarse.new_empty(len(rows), stop - first)
    for block in slices(stop - first, gallery.piece_rows()):
        gallery_coarse, gallery_fine = (
            part.T for part in gallery.split(slice(first + block.start, first + block.stop))
        )
        crossed = coarse @ gallery_fine + fine @ gallery_coarse
        similarity[:, block] = coarse @ gallery_coarse + (crossed + fine @ gallery_fine)
    return similarity


def _power_of_two_near(norms: Tensor) -> Tensor:
    """The power of two u with norm / u in [2/3, 4/3): the square of 4/3 still leaves float64 a bit to spare."""
    scaled = 0.75 * norms
    mantissa, _ = torch.frexp(scaled)
    return torch.where(norms > 0, scaled / mantissa, 1.0)


def _round_to_bits(values: Tensor, unit: Tensor, bits: int) -> Tensor:
    """Round to multiples of unit·2^−bits: next to 1.5·2^(52−bits)·unit that is the spacing of float64 itself."""
    shift = 1.5 * 2.0 ** (52 - bits) * unit
    return (values + shift) - shift
