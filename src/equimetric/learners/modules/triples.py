"""Triples that are not about classes: of three classes, or inside one class."""

from __future__ import annotations

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.geometry import find_geometry, unit
from equimetric.learners.batch import Batch
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.pairs import Pairs, Queries
from equimetric.references.batch import BatchReferences
from equimetric.selection.distance_weighted import negative_probabilities

__all__ = ["require_triples", "triple_terms", "triples_inside_classes", "triples_of_three_classes"]


def require_triples(objective: Objective | ObjectiveSum, learner: str) -> Objective | ObjectiveSum:
    """The objective; an error where it cannot be computed for given triples of a batch."""
    for _, part in objective.parts():
        if part.takes == "batch" or not isinstance(part.references, BatchReferences):
            raise EquimetricError(
                f"learner {learner!r} draws triples of its own from the batch, and {part.name!r} takes none; choose a "
                "method of pairs or triples of the batch, such as 'margin', 'triplet' or 'contrastive'"
            )
    return objective


@torch.no_grad()
def triples_of_three_classes(embedding: Tensor, labels: Tensor) -> Tensor:
    """(T, 3) for every anchor a positive and a negative, all three of different classes.

    The negative is drawn among other classes by distance weighting, as in Wu et al. (2017), and the positive
    uniformly among the classes that remain. Anchors without a negative near enough are left out.
    """
    if len(torch.unique(labels)) < 3:
        raise EquimetricError("triples of three classes need batches of three classes or more; raise batch.classes")
    points, other_class = unit(embedding.detach().to(torch.float64)), labels[:, None] != labels
    pairs = Pairs(
        points @ points.T, ~other_class, other_class, geometry=find_geometry("cosine"), queries=Queries(points, labels)
    )
    probs = negative_probabilities(pairs)
    anchor = (probs.sum(1) > 0).nonzero()[:, 0]
    if not len(anchor):
        return anchor.new_zeros(0, 3)
    negative = torch.multinomial(probs[anchor], 1)[:, 0]
    third_class = other_class[anchor] & other_class[negative]
    positive = torch.multinomial(third_class.to(torch.float64), 1)[:, 0]
    return torch.stack([anchor, positive, negative], dim=1)


@torch.no_grad()
def triples_inside_classes(labels: Tensor) -> Tensor:
    """(T, 3) for every anchor a positive and a negative, two more samples of its own class, drawn uniformly."""
    same = (labels[:, None] == labels).fill_diagonal_(False)
    anchor = (same.sum(1) > 1).nonzero()[:, 0]
    if not len(anchor):
        raise EquimetricError(
            "triples inside a class need three samples of it or more in a batch; set batch.samples = 3 or higher"
        )
    positive, negative = torch.multinomial(same[anchor].to(torch.float64), 2).unbind(1)
    return torch.stack([anchor, positive, negative], dim=1)


def triple_terms(
    objective: Objective | ObjectiveSum, embedding: Tensor, triples: Tensor, batch: Batch
) -> dict[str, Tensor]:
    """The terms of an objective for (B, d) embeddings and (T, 3) triples, at most one of every anchor."""
    masks = embedding.new_zeros(2, len(embedding), len(embedding), dtype=torch.bool)
    anchor, positive, negative = triples.unbind(1)
    masks[0, anchor, positive] = True
    masks[1, anchor, negative] = True
    terms: dict[str, Tensor] = objective.terms(embedding, (masks[0], masks[1]), index=batch.index, triplets=triples)
    return terms
