"""Products of some queries with many vectors: panels of columns that stay in the cache, each by one thread alone.

The last bits of a product depend on the shape of its factors, on their alignment in memory and on how many threads
share it. Here shapes and alignments depend on the data alone, and no two threads share a panel.
"""

import torch
from torch import Tensor

from equimetric.evaluation.engine.mapped_vectors import Vectors
from equimetric.ops.blocks import slices
from equimetric.threads import parallel_map

__all__ = ["MIN_BLOCK_ROWS", "multiply", "select_vectors"]

MIN_BLOCK_ROWS = 64
"""With fewer rows a matrix product is bound by memory, however large the gallery."""
PRODUCT_BYTES = 2**21
"""Gallery vectors multiplied at a time: they stay in the cache for all rows of the tile."""
PANEL_ROWS = 16
"""Panels have a multiple of this many vectors, so that all begin at the same alignment."""


def multiply(queries: Tensor, gallery: Vectors, out: Tensor, which: Tensor | slice) -> None:
    """Inner products with a range of gallery vectors, or with those at `which`, into `out` (Q, K)."""
    if out.is_cuda:
        torch.mm(queries, gallery[which].T, out=out)
        return
    step = max(MIN_BLOCK_ROWS, PRODUCT_BYTES // (gallery.shape[1] * gallery.dtype.itemsize)) // PANEL_ROWS * PANEL_ROWS

    def multiply_panel(columns: slice) -> None:
        torch.mm(queries, select_vectors(gallery, which, columns).T, out=out[:, columns])

    for _ in parallel_map(multiply_panel, slices(out.shape[1], step)):
        pass


def select_vectors(vectors: Vectors, which: Tensor | slice, part: slice) -> Tensor:
    """Some of the vectors at `which`, a range of them without a copy where they are in memory."""
    if isinstance(which, Tensor):
        return vectors.index_select(0, which[part])
    indices = range(len(vectors))[which][part]
    return vectors[indices.start : indices.stop : indices.step]
