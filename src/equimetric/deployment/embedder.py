"""A deployed model: images of any kind in, embeddings out, with the certificate of its threshold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.calibration import Certificate, IdentificationCertificate
from equimetric.data.decoding import map_in_threads
from equimetric.deployment.preprocessing import ImageLike, Preprocessing, list_images
from equimetric.deployment.runtimes import Arithmetic, Runtime
from equimetric.errors import EquimetricError
from equimetric.evaluation import Cohort
from equimetric.runs.embedding import images_per_block

__all__ = ["AnyCertificate", "Embedder"]

AnyCertificate: TypeAlias = Certificate | IdentificationCertificate


@dataclass(frozen=True, eq=False)
class Embedder:
    """Preprocessing and network together: `equimetric.load("model/").embed(["a.jpg", "b.jpg"])`.

    preprocessing  from an image to the pixels that the network takes
    runtime        computes the network
    arithmetic     float32 or int8
    dim            dimension of an embedding
    model          sha256 that identifies the network
    certificate    certificate of its threshold, checked against all of these; None for a model without one
    cohort         the cohort that normalises similarities
    """

    preprocessing: Preprocessing
    runtime: Runtime
    arithmetic: Arithmetic
    dim: int
    model: str
    certificate: AnyCertificate | None = None
    cohort: Cohort | None = None

    def embed(self, images: ImageLike | Iterable[ImageLike], *, batch: int | None = None) -> Tensor:
        """Files, images of Pillow, arrays (H, W, C) or tensors (C, H, W) → (N, D) float32 of unit length.

        Decoded and computed `batch` at a time, so that memory does not grow with the number of images.
        """
        return self.outputs(images, batch=batch)["embedding"]

    def outputs(self, images: ImageLike | Iterable[ImageLike], *, batch: int | None = None) -> dict[str, Tensor]:
        """`embedding`, and with a cohort the extended vectors `query` and `gallery`, whose products are the scores."""
        items = list_images(images)
        if not items:
            raise EquimetricError("there are no images to embed; give at least one")
        step = batch or images_per_block(self.preprocessing.size**2)
        parts = [self.compute(self.load_pixels(items[start : start + step])) for start in range(0, len(items), step)]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def load_pixels(self, images: Sequence[ImageLike]) -> NDArray[np.uint8]:
        """(B, C, S, S) pixels of a few images, decoded in threads."""
        return np.stack(list(map_in_threads(self._pixels, images)))

    def compute(self, pixels: NDArray[np.uint8]) -> dict[str, Tensor]:
        """The outputs of (B, C, S, S) pixels."""
        return {name: torch.from_numpy(np.asarray(rows)) for name, rows in self.runtime.run(pixels).items()}

    def same(self, images_a: ImageLike | Iterable[ImageLike], images_b: ImageLike | Iterable[ImageLike]) -> Tensor:
        """Whether pairs of images, or one and several, are of one class at the certified threshold, (P,) bool."""
        certificate = self.require_certificate("verification")
        return certificate.decide(self.embed(images_a), self.embed(images_b), cohort=self.cohort)

    def require_certificate(self, task: str) -> AnyCertificate:
        """The certificate, if it is of this task."""
        if self.certificate is None:
            raise EquimetricError("this model has no certificate, so nothing can be decided; export it with one")
        if self.certificate.task != task:
            raise EquimetricError(
                f"the certificate of this model is for {self.certificate.task}, not for {task}; export the run again "
                f"with --task {task}"
            )
        return self.certificate

    def _pixels(self, image: ImageLike) -> NDArray[np.uint8]:
        try:
            return self.preprocessing.pixels(image)
        except EquimetricError:
            raise
        except Exception as error:  # a damaged file can raise almost anything from inside a decoder
            raise EquimetricError(f"an image cannot be read: {image} ({error}); leave it out") from None

    def __repr__(self) -> str:
        certified = "no certificate" if self.certificate is None else f"certified for {self.certificate.task}"
        return f"Embedder({self.dim} dimensions, {self.arithmetic} in {self.runtime.title}, {certified})"
