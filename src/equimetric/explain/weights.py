"""The weight of every pair under an objective."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.geometry import safe_sqrt
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.pairs import Pairs
from equimetric.references.base import PairTerms

__all__ = ["FROM_COSINE", "pair_weights", "require_similarities", "signed_weights"]

FROM_COSINE: dict[str, Callable[[Tensor], Tensor]] = {
    "cosine": lambda cosine: cosine,
    "euclidean": lambda cosine: -safe_sqrt(2 - 2 * cosine),
    "sqeuclidean": lambda cosine: 2 * cosine - 2,
}
"""Geometry → similarity of unit vectors as a function of their cosine."""


def pair_weights(
    objective: Objective | ObjectiveSum,
    embeddings: Tensor,
    labels: Tensor,
    *arguments: Any,
    symmetric: bool = False,
    **options: Any,
) -> Tensor:
    """(Q, R) the weight that an objective gives to each pair: above 0 pulls a positive closer, pushes a negative away.

    With H the objective and s the cosine of a pair (in a geometry that is no function of the cosine, the similarity
    itself), per anchor w_ij = B (1 − 2 I_ij) ∂H/∂s_ij, all entries of s independent: the weights of the literature's
    tables; (1/B) Σ_i (Σ_N w s − Σ_P w s) then has the gradient of H.
    `symmetric=True` takes s_ij and s_ji as one variable: w_ij = ½ (1 − 2 I_ij)(∂H/∂s_ij + ∂H/∂s_ji).
    Further arguments are those of the objective: explicit references, `self_mask`, `index`. A loss of the embeddings
    themselves has no pair weights and raises an error; a loss that reads them beside the pairs, e.g. in a regulariser,
    has the weights of the pairs alone, with a warning. So has an objective with a memory, a penalty or a regulariser of
    proxies.
    """
    if not isinstance(objective, Objective | ObjectiveSum):
        raise EquimetricError(f"pair weights need an objective, such as em.objective({objective!r})")
    total: Tensor | None = None
    for weight, part in objective.parts():
        if part.references.needs_proxies and len(objective.parts()) > 1:
            warnings.warn(f"the weights leave out {part.name!r}, which compares proxies, not pairs", stacklevel=2)
            continue
        with torch.no_grad(), evaluation_mode(part):
            terms = part.pair_terms(embeddings, labels, *arguments, **options)
            part_weights = weight * explain_terms(part, terms, symmetric=symmetric)
        if terms.factor is not None:
            part_weights = part_weights * terms.factor
        if total is not None and total.shape != part_weights.shape:
            raise EquimetricError("the terms of this sum compare with different references; explain them one by one")
        total = part_weights if total is None else total + part_weights
    assert total is not None
    return total


def explain_terms(objective: Objective, terms: PairTerms, *, symmetric: bool) -> Tensor:
    """The weights of all queries: sets of pairs of other queries follow, further sets of the same ones are left out."""
    first = terms.weighted_pairs[0][1]
    explained = [
        (factor, pairs)
        for factor, pairs in terms.weighted_pairs
        if pairs is first or pairs.queries is not first.queries
    ]
    if len(explained) < len(terms.weighted_pairs):
        warnings.warn(
            f"the weights of {objective.name!r} leave out the loss of further pairs, e.g. with a memory", stacklevel=3
        )
    if terms.penalty is not None:
        warnings.warn(f"the weights of {objective.name!r} leave out the penalty of its references", stacklevel=3)
    queries = sum(len(pairs.similarity) for _, pairs in explained)
    set_weights = []
    for weight, pairs in explained:
        # The weights of a set are scaled by the number of its own queries.
        scale = weight * queries / max(1, len(pairs.similarity))
        set_weights.append(scale * signed_weights(objective, pairs, symmetric=symmetric, report=True))
    return set_weights[0] if len(set_weights) == 1 else torch.cat(set_weights)


def signed_weights(objective: Objective, pairs: Pairs, *, symmetric: bool = False, report: bool = False) -> Tensor:
    """The weights of these pairs; `report` warns where the loss reads more than the pairs."""
    require_similarities(objective)
    if symmetric and not objective.geometry.symmetric:
        raise EquimetricError(
            f"the {objective.geometry.name} geometry is not symmetric, so its pairs have no symmetric weights"
        )
    with torch.enable_grad():
        return differentiate(objective, pairs, symmetric=symmetric, report=report)


def require_similarities(objective: Objective) -> None:
    """Raise an error for an objective that compares nothing."""
    if objective.geometry.name == "none":
        raise no_weights(objective.name)


def no_weights(name: str) -> EquimetricError:
    """The error for a loss of the embeddings alone."""
    return EquimetricError(
        f"{name!r} reads the embeddings themselves, not the similarities of pairs, so pairs have no weights"
    )


def differentiate(objective: Objective, pairs: Pairs, *, symmetric: bool, report: bool) -> Tensor:
    """The derivative of the loss by the cosines, with the sign and scale of weights."""
    cosine, similarity = variables(objective, pairs.similarity.detach())
    queries = pairs.queries and replace(pairs.queries, embeddings=pairs.queries.embeddings.detach().requires_grad_())
    value = objective.value(pairs.replace(similarity=similarity, queries=queries))
    if value.ndim:
        raise EquimetricError(f"{objective.name!r} has no weights with reduction='none'; give another reduction")
    (gradient,) = torch.autograd.grad(value, cosine, retain_graph=True, materialize_grads=True)
    if report and queries is not None:
        report_embedding_gradient(objective.name, value, gradient, queries.embeddings)
    # +1 for negatives, −1 for positives, 0 for other pairs.
    sign = pairs.negative.to(gradient.dtype) - pairs.positive.to(gradient.dtype)
    if not symmetric:
        return len(gradient) * sign * gradient
    if gradient.shape[0] != gradient.shape[1]:
        raise EquimetricError("symmetric weights need the batch as its own references")
    return sign * (gradient + gradient.T) / 2


@contextmanager
def evaluation_mode(objective: Objective) -> Iterator[None]:
    """Evaluation mode, so that computing weights is no training step: no sampled classes, no annealing, no memory."""
    training = [module for module in objective.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def report_embedding_gradient(name: str, value: Tensor, gradient: Tensor, embeddings: Tensor) -> None:
    """Raise an error for a loss of the embeddings alone; warn where it reads them beside the pairs."""
    (embedding_gradient,) = torch.autograd.grad(value, embeddings, allow_unused=True)
    if embedding_gradient is None or not embedding_gradient.any():
        return
    if not gradient.any():
        raise no_weights(name)
    warnings.warn(
        f"{name!r} reads the embeddings beside the similarities of pairs; the weights leave that part out",
        stacklevel=6,
    )


def variables(objective: Objective, similarity: Tensor) -> tuple[Tensor, Tensor]:
    """The variable that weights are derivatives by, and the similarity as a function of it."""
    name = objective.geometry.name
    if name not in FROM_COSINE or not objective.normalize:
        free = similarity.requires_grad_()
        return free, free
    cosine = 1 - objective.geometry.chord(similarity).square() / 2 if name != "cosine" else similarity
    cosine = cosine.requires_grad_()
    return cosine, FROM_COSINE[name](cosine)
