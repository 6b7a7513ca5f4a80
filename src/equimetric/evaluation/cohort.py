"""Cohort normalisation: similarities less how crowded the neighbourhoods of both sides are.

A query in a crowded region is close to everything, one in an empty region to nothing, so one threshold does not suit
both. m(x) is the mean of the K largest cosines of x to a cohort of other classes, and

    s'(x, y) = s(x, y) − λ ½ (m(x) + m(y)) = (x, −½ λ m(x), 1) · (y, 1, −½ λ m(y)),

an inner product of extended vectors, so that the scan over tiles works unchanged. Known from speaker verification.
s' is no cosine and has no distance: `opis` integrates over s' itself, so compare it with that of strength 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.inputs import EmbeddingsLike, LabelsLike, convert_embeddings
from equimetric.evaluation.families import METRICS, Metric
from equimetric.ops.blocks import slices

__all__ = ["Cohort", "check_cohort_metrics"]

BLOCK_ENTRIES = 2**24
"""Similarities to the cohort in memory at once."""


def check_cohort_metrics(metrics: tuple[Metric, ...]) -> None:
    """Raise an error for a metric that reads embeddings and not similarities: extended vectors mean nothing to it."""
    for metric in metrics:
        collectors = METRICS[metric.family].collectors
        if not collectors or not all(collector.reads_tiles for collector in collectors):
            raise EquimetricError(
                f"{metric.name!r} describes embeddings, which a cohort does not change; leave it out, or the cohort"
            )


@dataclass(frozen=True, eq=False)
class Cohort:
    """Embeddings of classes that are neither queries nor gallery, and how strongly they count.

    embeddings  (C, D), at least one; brought to unit length
    strength    λ from 0 (no normalisation) to 1
    nearest     K, how many of the most similar ones count; all where there are fewer
    """

    embeddings: EmbeddingsLike
    strength: float = 0.5
    nearest: int = 50

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1:
            raise EquimetricError(f"the strength of a cohort lies between 0 and 1, not {self.strength}")
        if self.nearest < 1:
            raise EquimetricError(f"nearest is {self.nearest}; a cohort needs at least 1")

    def crowdedness(self, unit: Tensor) -> Tensor:
        """(N,) m(x), the mean of the K largest cosines of (N, D) unit vectors to the cohort."""
        cohort = normalize(convert_embeddings(self.embeddings, "cohort embeddings")).to(unit)
        if cohort.shape[1] != unit.shape[1]:
            raise EquimetricError(f"the cohort has dimension {cohort.shape[1]}, the embeddings {unit.shape[1]}")
        nearest, rows = min(self.nearest, len(cohort)), max(1, BLOCK_ENTRIES // len(cohort))
        return torch.cat(
            [(unit[some] @ cohort.T).topk(nearest, dim=1).values.mean(1) for some in slices(len(unit), rows)]
        )

    def extend(self, embeddings: EmbeddingsLike, gallery: EmbeddingsLike | None) -> tuple[Tensor, Tensor]:
        """(N, D + 2) query vectors and (G, D + 2) gallery vectors, whose inner products are s'."""
        queries = normalize(convert_embeddings(embeddings, "embeddings"))
        items = queries if gallery is None else normalize(convert_embeddings(gallery, "gallery_embeddings"))
        shift = -self.strength / 2 * self.crowdedness(queries)[:, None]
        item_shift = shift if gallery is None else -self.strength / 2 * self.crowdedness(items)[:, None]
        return (
            torch.cat([queries, shift, torch.ones_like(shift)], 1),
            torch.cat([items, torch.ones_like(item_shift), item_shift], 1),
        )

    def arguments(
        self,
        embeddings: EmbeddingsLike,
        labels: LabelsLike,
        gallery_embeddings: EmbeddingsLike | None,
        gallery_labels: LabelsLike | None,
        query_ids: LabelsLike | None,
        gallery_ids: LabelsLike | None,
    ) -> dict[str, Any]:
        """The arguments of `evaluate` for the extended vectors; a set is its own gallery by the ids of its rows."""
        queries, items = self.extend(embeddings, gallery_embeddings)
        if gallery_embeddings is None:
            query_ids = torch.arange(len(queries)) if query_ids is None else query_ids
            gallery_labels, gallery_ids = labels, query_ids
        return {
            "embeddings": queries,
            "labels": labels,
            "gallery_embeddings": items,
            "gallery_labels": gallery_labels,
            "query_ids": query_ids,
            "gallery_ids": gallery_ids,
            "geometry": "dot",
        }


def normalize(vectors: Tensor) -> Tensor:
    """Vectors at unit length."""
    return torch.nn.functional.normalize(vectors)
