"""What every certificate does with its threshold: the distances or scores of pairs, and whether they are accepted."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from equimetric.calibration.cohort import CertifiedCohort
from equimetric.errors import EquimetricError
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.inputs import EmbeddingsLike, convert_embeddings
from equimetric.files import write_atomically
from equimetric.ops.blocks import directions

__all__ = ["SCORES", "CalibrationData", "CertificateBase"]

SCORES = {
    "cosine": "Euclidean distance between unit vectors",
    "euclidean": "Euclidean distance between the vectors themselves",
}
"""What the distance of a pair is, by geometry."""


@dataclass(frozen=True)
class CalibrationData:
    """What a threshold was calibrated on; `sha256` is `data_fingerprint` of the embeddings and labels."""

    sha256: str
    samples: int
    dimension: int
    classes: int


class CertificateBase:
    """Applies a certificate, and refuses what it is not for.

    threshold  pairs at a smaller distance are accepted, with a cohort pairs of a larger score
    cohort     what normalises the scores; None for distances
    """

    threshold: float
    data: CalibrationData
    model: str | None
    preprocessing: str | None
    cohort: CertifiedCohort | None
    runtime: str | None

    if TYPE_CHECKING:
        # Each certificate has these in its own way: as a field, or from its options.
        @property
        def geometry(self) -> str:
            """What the distances are."""

        def to_dict(self) -> dict[str, Any]:
            """The document in plain types."""

    @property
    def score(self) -> str:
        """What is compared with the threshold, in words."""
        return SCORES[self.geometry] if self.cohort is None else "cosine of a pair, normalised by a cohort"

    @property
    def rule(self) -> str:
        """Which pairs are accepted."""
        return "distance < threshold" if self.cohort is None else "score > threshold"

    def accepts(self, distance: Any) -> Any:
        """Whether pairs at this distance, or with a cohort of this score, are accepted: a number, array or tensor."""
        finite = torch.isfinite(distance) if isinstance(distance, Tensor) else np.isfinite(distance)
        if not bool(finite.all()):
            measure = "distance" if self.cohort is None else "score"
            raise EquimetricError(f"a {measure} is NaN or infinite, so nothing can be decided; give finite embeddings")
        return distance < self.threshold if self.cohort is None else distance > self.threshold

    def scores(self, embeddings_a: EmbeddingsLike, embeddings_b: EmbeddingsLike, cohort: Cohort | None) -> Tensor:
        """The score of each pair of rows, normalised by the certified cohort; otherwise as `distances`."""
        if self.cohort is None:
            raise EquimetricError("this certificate is of distances, not of scores; use distances(…), without a cohort")
        certified = self.cohort.require(cohort)
        first, second = self._pairs(embeddings_a, embeddings_b)
        (queries, _), (_, items) = certified.extend(first), certified.extend(second)
        score: Tensor = (queries * items.to(queries.device)).sum(dim=1)
        return score

    def distances(self, embeddings_a: EmbeddingsLike, embeddings_b: EmbeddingsLike) -> Tensor:
        """The distance of each pair of rows of (P, D) and (P, D), or of one row and P others: (P,) float64."""
        if self.cohort is not None:
            raise EquimetricError("this certificate is of scores, not of distances; use scores(…, cohort)")
        first, second = self._pairs(embeddings_a, embeddings_b)
        difference: Tensor = torch.linalg.vector_norm(first - second.to(first.device), dim=1)
        return difference

    def save(self, file: str | Path) -> None:
        """Write the certificate as JSON."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(Path(file), text + "\n")

    def _pairs(self, embeddings_a: EmbeddingsLike, embeddings_b: EmbeddingsLike) -> tuple[Tensor, Tensor]:
        first, second = (
            self._vectors(embeddings, name)
            for embeddings, name in ((embeddings_a, "embeddings_a"), (embeddings_b, "embeddings_b"))
        )
        if len(first) != len(second) and 1 not in (len(first), len(second)):
            raise EquimetricError(
                f"embeddings_a have {len(first)} rows and embeddings_b {len(second)}; give pairs of rows, or one row "
                "and several"
            )
        return first, second

    def decide(
        self,
        embeddings_a: EmbeddingsLike,
        embeddings_b: EmbeddingsLike,
        *,
        cohort: Cohort | None = None,
        model: str | None = None,
        preprocessing: str | None = None,
    ) -> Tensor:
        """Whether pairs of rows are accepted as the same, (P,) bool; see `distances`, and with a cohort `scores`.

        Embeddings of another dimension, or of another model or preprocessing where these are given, raise an error.
        """
        self.check_compatible(model=model, preprocessing=preprocessing)
        if self.cohort is None and cohort is None:
            return torch.as_tensor(self.accepts(self.distances(embeddings_a, embeddings_b)))
        return torch.as_tensor(self.accepts(self.scores(embeddings_a, embeddings_b, cohort)))

    def check_compatible(
        self,
        *,
        dimension: int | None = None,
        geometry: str | None = None,
        model: str | None = None,
        preprocessing: str | None = None,
        runtime: str | None = None,
    ) -> None:
        """Raise an error where something that is given is not what the certificate is for."""
        certified = {
            "dimension": self.data.dimension,
            "geometry": self.geometry,
            "model": self.model,
            "preprocessing": self.preprocessing,
            "runtime": self.runtime,
        }
        actual = {
            "dimension": dimension,
            "geometry": geometry,
            "model": model,
            "preprocessing": preprocessing,
            "runtime": runtime,
        }
        for name, value in actual.items():
            if value is not None and certified[name] is not None and value != certified[name]:
                raise EquimetricError(
                    f"this certificate is for the {name} {certified[name]!r}, not {value!r}; calibrate a threshold for "
                    "these embeddings"
                )

    def _vectors(self, embeddings: EmbeddingsLike, name: str) -> Tensor:
        """(N, D) float64 vectors whose Euclidean distances the certificate is about."""
        vectors = convert_embeddings(embeddings, name).double()
        self.check_compatible(dimension=vectors.shape[1])
        if self.geometry == "euclidean":
            return vectors
        unit = directions(vectors)
        if not bool((unit != 0).any(dim=1).all()):
            raise EquimetricError(f"{name} contain vectors of length zero, which have no cosine; remove them")
        return unit
