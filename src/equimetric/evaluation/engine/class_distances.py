"""Distances within classes, in blocks of bounded memory."""

from collections.abc import Iterator

import torch
from torch import Tensor

from equimetric.evaluation.engine.mapped_vectors import Vectors
from equimetric.ops.blocks import TILE_BYTES, slices

__all__ = ["distances_within_classes", "rows_per_tile"]


def distances_within_classes(
    queries: Vectors, query_classes: Tensor, gallery: Vectors, gallery_classes: Tensor
) -> Iterator[tuple[int, Tensor]]:
    """Class number and Euclidean distances (rows, n_g) of some of its queries to all gallery items of the class."""
    count = 1 + int(torch.maximum(query_classes.max(), gallery_classes.max()))
    row_ends = query_classes.bincount(minlength=count).cumsum(0).tolist()
    column_ends = gallery_classes.bincount(minlength=count).cumsum(0).tolist()
    rows, columns = query_classes.argsort(stable=True), gallery_classes.argsort(stable=True)
    for class_index, (row_start, row_end, column_start, column_end) in enumerate(
        zip([0, *row_ends], row_ends, [0, *column_ends], column_ends, strict=False)
    ):
        items = gallery[columns[column_start:column_end]].double()
        for part in slices(row_end - row_start, rows_per_tile(items)):
            block = torch.cdist(queries[rows[row_start:row_end][part]].double(), items)
            if gallery is queries:
                # A vector has distance 0 from itself, despite rounding.
                block.diagonal(part.start).zero_()
            yield class_index, block


def rows_per_tile(vectors: Tensor) -> int:
    """Number of rows of float64 distances to these vectors that fit into a tile."""
    return max(1, TILE_BYTES // (8 * max(1, len(vectors))))
