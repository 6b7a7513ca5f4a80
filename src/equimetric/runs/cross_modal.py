"""Search across modalities: one half of a pair queries for the other, among all items of a part of the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from equimetric.data.attributes import attribute_ids
from equimetric.data.dataset import ITEM
from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate
from equimetric.learners import Learner
from equimetric.runs.data import RunData
from equimetric.runs.evaluation_config import Relevance
from equimetric.runs.result import CrossModalResult

__all__ = ["CROSS_METRICS", "PairedEmbeddings", "evaluate_across", "pair_members", "require_paired"]

CROSS_METRICS = ("recall@1", "recall@5", "recall@10", "map@r", "median_rank")
"""Metrics of every result of a learner of two encoders."""


@dataclass(frozen=True, eq=False)
class Modality:
    """One side of paired data.

    Attributes:
        name: name of the modality.
        embeddings: (M, d) embeddings of its different inputs: an image of five texts is embedded once.
        rows: (M,) rows of the data set; of several with the same input the first.
        classes, items: (M,) class and item of each row.
    """

    name: str
    embeddings: Tensor
    rows: Tensor
    classes: Tensor
    items: Tensor

    def relevant_by(self, relevance: Relevance) -> Tensor:
        """(M,) labels by which another modality's rows are relevant."""
        return self.items if relevance == "item" else self.classes


@dataclass(frozen=True, eq=False)
class PairedEmbeddings:
    """Two modalities of one part of the data, in one space."""

    first: Modality
    second: Modality

    def directions(self) -> Iterable[tuple[Modality, Modality]]:
        """Queries and gallery, either way."""
        return (self.first, self.second), (self.second, self.first)

    def both_directions(self, relevance: Relevance) -> dict[str, Any]:
        """Both searches as one, for `LabelledEmbeddings`: each has its own parent and labels."""
        # Queries of both searches, then their galleries: every second one belongs to the second search.
        sides = [self.first, self.second, self.second, self.first]
        labels = [side.relevant_by(relevance) for side in sides]
        offset = 1 + max(int(side_labels.max()) for side_labels in labels)
        queries = len(self.first.rows) + len(self.second.rows)
        return {
            "embeddings": torch.cat([side.embeddings for side in sides]),
            "labels": torch.cat([side_labels + offset * (i % 2) for i, side_labels in enumerate(labels)]),
            "parents": torch.cat([torch.full_like(side_labels, i % 2) for i, side_labels in enumerate(labels)]),
            "rows": torch.cat([side.rows for side in sides]),
            "classes": torch.cat([side.classes for side in sides]),
            "query": torch.arange(queries),
            "gallery": torch.arange(queries, 2 * queries),
        }


def require_paired(learner: Learner) -> tuple[str, str]:
    """The two members in a common space; an error where a learner has none."""
    if learner.paired is None:
        raise EquimetricError(
            "evaluation.across searches one modality by the other, which needs the learner 'two_encoders'; "
            "leave it out, or set learner.name = 'two_encoders'"
        )
    return learner.paired


def pair_members(learner: Learner, data: RunData, part: str, members: Mapping[str, Tensor]) -> PairedEmbeddings:
    """The members of a learner of two encoders, (N, d) of a part's rows, as two modalities of different inputs each."""
    rows = data.rows(part)
    items = attribute_ids(data.dataset)[ITEM][rows] if ITEM in data.dataset.sample_attributes else None
    sizes = list(data.dataset.modalities.values())

    def build_modality(index: int, name: str) -> Modality:
        chosen = torch.arange(len(rows))
        if items is not None and sizes:
            vectors = data.images(part)
            assert isinstance(vectors, Tensor), "modalities are feature vectors"
            chosen = first_rows(torch.split(vectors, sizes, dim=1)[index], items)
        side_rows = rows[chosen]
        side_items = side_rows if items is None else items[chosen]
        return Modality(name, members[name][chosen], side_rows, data.dataset.labels[side_rows], side_items)

    first, second = (build_modality(index, name) for index, name in enumerate(require_paired(learner)))
    return PairedEmbeddings(first, second)


def first_rows(vectors: Tensor, items: Tensor) -> Tensor:
    """(M,) ascending positions of the first row of every different vector of an item."""
    first_index: dict[tuple[int, bytes], int] = {}
    for index, (item, vector) in enumerate(zip(items.tolist(), vectors.numpy(), strict=True)):
        first_index.setdefault((item, vector.tobytes()), index)
    return torch.tensor(list(first_index.values()))


def evaluate_across(pairs: PairedEmbeddings, geometry: str) -> tuple[CrossModalResult, ...]:
    """The metrics of both directions, once with the same item and once with the same class as relevant."""
    relevances: tuple[Relevance, ...] = ("item", "class")
    results = []
    for relevance in relevances:
        for queries, gallery in pairs.directions():
            scores = evaluate(
                queries.embeddings,
                queries.relevant_by(relevance),
                gallery.embeddings,
                gallery.relevant_by(relevance),
                metrics=CROSS_METRICS,
                geometry=geometry,
            )
            results.append(
                CrossModalResult(
                    query=queries.name,
                    gallery=gallery.name,
                    relevant=relevance,
                    queries=len(queries.rows),
                    items=len(gallery.rows),
                    metrics=dict(scores),
                )
            )
    return tuple(results)
