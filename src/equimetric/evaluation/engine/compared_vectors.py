"""Vectors as a geometry compares them: at unit length, as signs, or unchanged; those on disk when they are read."""

from dataclasses import replace

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.exact import row_norms
from equimetric.evaluation.engine.mapped_vectors import MappedVectors, Vectors
from equimetric.geometry import Geometry
from equimetric.ops.blocks import slices

__all__ = ["GeometryLike", "apply_geometry", "cached_pieces", "check_rows", "normalize_rows"]

GeometryLike = str | Geometry
NORMALIZING_BYTES = 2**20
"""Size of float64 copies while embeddings are normalised: they should stay in the cache."""
UNIT_WITHIN = 16
"""Normalised vectors have norm 1 up to this many epsilons."""


def apply_geometry(queries: Vectors, gallery: Vectors | None, geometry: GeometryLike) -> tuple[Vectors, Vectors | None]:
    """The vectors that the geometry compares: unit length for cosine, ±1 for Hamming, else unchanged."""
    if geometry == "cosine" or (isinstance(geometry, Geometry) and geometry.normalize):
        unit = _unit_vectors(queries, "embeddings")
        return unit, None if gallery is None else _unit_vectors(gallery, "gallery_embeddings")
    if geometry == "hamming":
        return _sign_vectors(queries), None if gallery is None else _sign_vectors(gallery)
    if geometry == "dot":
        _check_products_finite(queries, queries if gallery is None else gallery)
    return queries, gallery


def _sign_vectors(embeddings: Vectors) -> Vectors:
    """Entries above zero become +1, others −1; float32 holds their sums exactly."""
    if isinstance(embeddings, MappedVectors):
        return replace(embeddings, signs=True, dtype=torch.float32)
    return (embeddings > 0).float().mul_(2).sub_(1)


def normalize_rows(embeddings: Tensor, name: str) -> Tensor:
    """Each row divided by its norm, which is computed in float64 to avoid overflow and underflow.

    Returned without a copy where all norms are 1 up to rounding.
    """
    norms = _nonzero_norms(embeddings, name)
    if norms is None:
        return embeddings
    unit = torch.empty_like(embeddings)
    for rows in cached_pieces(embeddings):
        unit[rows] = embeddings[rows].double() / norms[rows, None]
    return unit


def _unit_vectors(embeddings: Vectors, name: str) -> Vectors:
    """As `normalize_rows`; vectors on disk are divided whenever they are read."""
    if isinstance(embeddings, Tensor):
        return normalize_rows(embeddings, name)
    return replace(embeddings, norms=_nonzero_norms(embeddings, name))


def _nonzero_norms(embeddings: Vectors, name: str) -> Tensor | None:
    """Norms (N,) of all vectors; None where all are 1 up to rounding."""
    norms = row_norms(embeddings)
    check_rows(
        (norms > 0) & norms.isfinite(),
        f"{name} contain vectors of length zero (or too long for float64)",
        "they have no direction to compare by: remove them, or pass geometry='euclidean' or 'dot'",
    )
    is_unit = (norms - 1).abs().max() <= UNIT_WITHIN * torch.finfo(embeddings.dtype).eps
    return None if is_unit else norms


def cached_pieces(vectors: Vectors) -> list[slice]:
    """Ranges of rows whose float64 copies stay in the cache."""
    return slices(len(vectors), max(1, NORMALIZING_BYTES // (8 * vectors.shape[1])))


def _check_products_finite(queries: Vectors, gallery: Vectors) -> None:
    """Raise an error where vectors are so long that their inner products overflow."""
    max_norms = [row_norms(vectors).max().to(queries.dtype) for vectors in (queries, gallery)]
    if not torch.isfinite(max_norms[0] * max_norms[1]):
        raise EquimetricError(
            f"the embeddings are too long: inner products overflow {str(queries.dtype).removeprefix('torch.')}; "
            "rescale them or pass geometry='cosine'"
        )


def check_rows(valid: Tensor, problem: str, remedy: str) -> None:
    """Raise an error that counts the rows that are not good, (N,), and names the first."""
    if valid.all():
        return
    invalid = (~valid).nonzero().flatten()
    rows = "1 row" if len(invalid) == 1 else f"{len(invalid)} rows"
    raise EquimetricError(f"{problem} in {rows} of {len(valid)}, the first is row {int(invalid[0])}; {remedy}")
