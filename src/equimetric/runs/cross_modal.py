"""Search across modalities: the one half of a pair looks for the other, among all items of a part of the data."""

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
"""What every result of a learner of two encoders reports."""


@dataclass(frozen=True, eq=False)
class Modality:
    """One side of paired data.

    Attributes:
        name: of the modality.
        embeddings: (M, d) of its different inputs: an image of five texts is embedded once.
        rows: (M,) rows of the data set, of several with the same input the first.
        classes, items: (M,) what each shows.
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
        """Both searches as one, for `LabelledEmbeddings`: each a parent of its own, with labels of its own."""
        # Queries of both searches, then their galleries: every second one belongs to the second search.
        halves = [self.first, self.second, self.second, self.first]
        labels = [one.relevant_by(relevance) for one in halves]
        apart = 1 + max(int(own.max()) for own in labels)
        queries = len(self.first.rows) + len(self.second.rows)
        return {
            "embeddings": torch.cat([one.embeddings for one in halves]),
            "labels": torch.cat([own + apart * (place % 2) for place, own in enumerate(labels)]),
            "parents": torch.cat([torch.full_like(own, place % 2) for place, own in enumerate(labels)]),
            "rows": torch.cat([one.rows for one in halves]),
            "classes": torch.cat([one.classes for one in halves]),
            "query": torch.arange(queries),
            "gallery": torch.arange(queries, 2 * queries),
        }


def require_paired(learner: Learner) -> tuple[str, str]:
    """The two members that lie in one space; an error where a learner has none."""
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

    def one_side(place: int, name: str) -> Modality:
        chosen = torch.arange(len(rows))
        if items is not None and sizes:
            vectors = data.images(part)
            assert isinstance(vectors, Tensor), "modalities are feature vectors"
            chosen = first_rows(torch.split(vectors, sizes, dim=1)[place], items)
        own = rows[chosen]
        shown = own if items is None else items[chosen]
        return Modality(name, members[name][chosen], own, data.dataset.labels[own], shown)

    first, second = (one_side(place, name) for place, name in enumerate(require_paired(learner)))
    return PairedEmbeddings(first, second)


def first_rows(vectors: Tensor, items: Tensor) -> Tensor:
    """(M,) ascending positions of the first row of every different vector of an item."""
    found: dict[tuple[int, bytes], int] = {}
    for place, (item, vector) in enumerate(zip(items.tolist(), vectors.numpy(), strict=True)):
        found.setdefault((item, vector.tobytes()), place)
    return torch.tensor(list(found.values()))


def evaluate_across(pairs: PairedEmbeddings, geometry: str) -> tuple[CrossModalResult, ...]:
    """The metrics of both directions, with the same item and with the same class as what is to be found."""
    relevances: tuple[Relevance, ...] = ("item", "class")
    found = []
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
            found.append(
                CrossModalResult(
                    query=queries.name,
                    gallery=gallery.name,
                    relevant=relevance,
                    queries=len(queries.rows),
                    items=len(gallery.rows),
                    metrics=dict(scores),
                )
            )
    return tuple(found)
