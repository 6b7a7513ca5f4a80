"""A certificate's comparison of a query with a gallery item, as an inner product and a shift of the item.

    cosine     d² = 2 − 2 q·x                                  of unit vectors
    euclidean  d² = ‖q‖² − 2 (q·x − ½ ‖x‖²)
    cohort     s' = q·x + shift(q) + shift(x)                  of the extended vectors of `Cohort`

The *affinity* q·x + shift(x) orders items as the certificate does. It is what a scan bounds; the score that decides
is computed by the certificate's own formula, in float64.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from equimetric.calibration.certificate_base import CertificateBase
from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.compared_vectors import check_rows, normalize_rows
from equimetric.evaluation.engine.inputs import EmbeddingsLike, convert_embeddings
from equimetric.ops.blocks import directions

__all__ = ["CertifiedComparison", "GalleryQueries"]

Kind = Literal["cosine", "euclidean", "cohort"]
EXTRA = 2
"""Coordinates that a cohort adds to an item, (1, shift), and to a query, (shift, 1)."""
UNIT_TOLERANCE = 1e-4
"""Extended vectors of float32, or of a network's float16 output, begin with unit vectors up to this."""


@dataclass(frozen=True)
class GalleryQueries:
    """Converted queries.

    vectors   (Q, E) float64
    products  (Q, C) the columns that enter q·x
    offset    (Q,) converts an affinity into a score: see `CertifiedComparison.affinity`
    """

    vectors: Tensor
    products: Tensor
    offset: Tensor

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: Any) -> "GalleryQueries":
        return GalleryQueries(self.vectors[rows], self.products[rows], self.offset[rows])


@dataclass(frozen=True)
class CertifiedComparison:
    """The comparison of a certificate.

    kind       cosine, Euclidean distance, or cohort score
    dimension  D of the embeddings
    columns    C, the columns of a vector that enter q·x: D, or 2D with a full cohort
    """

    kind: Kind
    dimension: int
    columns: int

    @classmethod
    def from_certificate(cls, certificate: CertificateBase) -> "CertifiedComparison":
        """The comparison that a certificate's threshold is about."""
        dimension, cohort = certificate.data.dimension, certificate.cohort
        if cohort is None:
            return cls("cosine" if certificate.geometry == "cosine" else "euclidean", dimension, dimension)
        full = cohort.form == "full" and cohort.strength > 0
        return cls("cohort", dimension, 2 * dimension if full else dimension)

    @property
    def width(self) -> int:
        """E, the columns of a vector."""
        return self.columns + (EXTRA if self.kind == "cohort" else 0)

    @property
    def has_shift(self) -> bool:
        """Whether items have a shift."""
        return self.kind != "cosine"

    @property
    def weight(self) -> float:
        """The factor of the last coordinate of a query, by which the shift of an item counts."""
        return 0.5 if self.columns > self.dimension else 1.0

    def convert_items(self, embeddings: EmbeddingsLike, name: str = "vectors") -> Tensor:
        """(N, E) float32 gallery vectors, at unit length for cosine."""
        vectors = self._convert(embeddings, name, "gallery")
        if self.kind == "cosine":
            vectors = normalize_rows(vectors, name)
        if self.kind == "cohort":
            self._check_extended(vectors, vectors[:, : self.dimension], vectors[:, -2] == 1, name, "gallery")
        items = vectors.float()
        check_rows(torch.isfinite(items).all(dim=1), f"{name} exceed the range of float32", "rescale them")
        return items

    def convert_queries(self, embeddings: EmbeddingsLike, name: str = "queries") -> GalleryQueries:
        """Queries in float64, at unit length for cosine."""
        vectors = self._convert(embeddings, name, "query").double()
        if self.kind == "cosine":
            vectors = directions(vectors)
            check_rows(vectors.any(dim=1), f"{name} contain vectors of length zero", "they have no cosine")
            return GalleryQueries(vectors, vectors, torch.ones(len(vectors), dtype=torch.float64))
        if self.kind == "euclidean":
            return GalleryQueries(vectors, vectors, vectors.square().sum(dim=1) / 2)
        unit = vectors[:, self.columns - self.dimension : self.columns] / self.weight
        self._check_extended(vectors, unit, vectors[:, -1] == self.weight, name, "query")
        return GalleryQueries(vectors, vectors[:, : self.columns], vectors[:, -2])

    def shifts(self, items: Tensor) -> Tensor:
        """(N,) float64 shift of each item (N, E)."""
        if self.kind == "cohort":
            return self.weight * items[:, -1].double()
        return -items.double().square().sum(dim=1) / 2

    def affinity(self, score: Tensor | float, offset: Tensor) -> Tensor:
        """The affinity at a score, for queries with this offset."""
        return torch.as_tensor(score) - offset if self.kind == "cohort" else offset - torch.as_tensor(score) ** 2 / 2

    def scores(self, queries: Tensor, items: Tensor) -> Tensor:
        """(P,) float64: the distance of each pair of rows (P, E), or with a cohort its score, as certificates do."""
        if self.kind == "cohort":
            score: Tensor = (queries * items.double()).sum(dim=1)
            return score
        compared = directions(items) if self.kind == "cosine" else items.double()
        distance: Tensor = torch.linalg.vector_norm(queries - compared, dim=1)
        return distance

    @property
    def sign(self) -> float:
        """Multiplied by it, smaller scores are closer."""
        return -1.0 if self.kind == "cohort" else 1.0

    def _convert(self, embeddings: EmbeddingsLike, name: str, side: str) -> Tensor:
        vectors = convert_embeddings(embeddings, name).cpu()
        if vectors.shape[1] == self.width:
            return vectors
        if self.kind == "cohort" and vectors.shape[1] == self.dimension:
            raise EquimetricError(
                f"{name} have dimension {self.dimension}, and this gallery compares vectors that a cohort extends to "
                f"{self.width}; give the {side} vectors, of Cohort.extend or of the exported model"
            )
        raise EquimetricError(
            f"{name} have dimension {vectors.shape[1]}, those of this gallery {self.width}; embed with its model"
        )

    def _check_extended(self, vectors: Tensor, unit: Tensor, marked: Tensor, name: str, side: str) -> None:
        near_unit = (unit.double().norm(dim=1) - 1).abs() < UNIT_TOLERANCE
        check_rows(
            marked.to(vectors.device) & near_unit,
            f"{name} are no {side} vectors of a cohort",
            f"give the {side} vectors, of Cohort.extend or of the exported model",
        )
