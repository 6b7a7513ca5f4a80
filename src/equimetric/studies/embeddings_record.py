"""Embeddings with their labels as a report shows them: of a file, or of a run's test classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError
from equimetric.runs.profile import RunProfile

__all__ = ["EmbeddingsRecord"]


@dataclass(frozen=True, eq=False)
class EmbeddingsRecord:
    """N vectors with their classes.

    Attributes:
        name, title: name and title of the file or run.
        embeddings: (N, D).
        labels: (N,) class ids; `class_names` maps them to names, a missing one is the id itself.
        metrics: name → value, measured on exactly these vectors.
        intervals: name → lower and upper end of the 95 % interval, where there is one.
        geometry: how two vectors are compared.
        image: row → image (C, H, W) uint8, where images are at hand.
        facts: further facts in words: file, size, fingerprint.
        profile: rates of every threshold, where computed.
        per_query: `index`, `labels`, `neighbours` and scores of every vector as a query, where they are known.
        commands: what measures the same again.
    """

    name: str
    title: str
    embeddings: NDArray[Any]
    labels: NDArray[np.int64]
    class_names: Mapping[int, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    geometry: str = "cosine"
    image: Callable[[int], NDArray[np.uint8]] | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    profile: RunProfile | None = None
    per_query: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    commands: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.embeddings.ndim != 2 or self.labels.shape != self.embeddings.shape[:1]:
            raise EquimetricError(
                f"a report takes embeddings (N, D) with a label each, but {self.name!r} has {self.embeddings.shape} "
                f"and labels {self.labels.shape}; give one label for every row"
            )

    def class_name(self, label: int) -> str:
        """The name of a class."""
        return self.class_names.get(label, str(label))
