"""VICReg: variance, invariance and covariance, without negatives."""

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import NonNegativeFloat, PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform


@loss(
    "vicreg",
    title="VICReg",
    family="ranking",
    paper="Bardes, Ponce, LeCun: VICReg: variance-invariance-covariance regularization (2022)",
    geometry="sqeuclidean",
    references="batch",
    normalize=False,
    search={
        "invariance": LogUniform(1.0, 100.0),
        "variance": LogUniform(1.0, 100.0),
        "covariance": LogUniform(0.1, 10),
    },
)
def vicreg(
    pairs: Pairs,
    *,
    invariance: NonNegativeFloat = 25.0,
    variance: NonNegativeFloat = 25.0,
    covariance: NonNegativeFloat = 1.0,
    deviation: PositiveFloat = 1.0,
    epsilon: PositiveFloat = 1e-4,
) -> Tensor:
    """Pull positives together while every coordinate varies and no two vary together; on raw embeddings.

    L = λ mean_{positives} ‖z − z'‖²/D + μ/2 (v(Z) + v(Z')) + ν (c(Z) + c(Z')), λ, μ, ν = `invariance`, `variance`,
    `covariance`; v(Z) = 1/D Σ_d [deviation − √(Var(Z_d) + ε)]₊, c(Z) = 1/D Σ_{d≠e} Cov(Z)²_de. Z' is the explicit
    reference set where one is given, such as second views with the labels of the first, and else the batch Z itself.
    """
    queries = ops.require.queries(pairs, "vicreg")
    views = [queries.embeddings] if queries.references is None else [queries.embeddings, queries.references]
    invariance_loss = ops.mean(-pairs.similarity, pairs.positive, pairs.weight) / queries.embeddings.shape[1]
    weights = [pairs.query_weight, None if pairs.weight is None else pairs.weight.amax(0)]
    moments = [covariances(*view) for view in zip(views, weights, strict=False)]
    variance_loss = torch.stack([variance_hinge(moment, deviation, epsilon) for moment in moments]).mean()
    covariance_loss = torch.stack([squared_covariance(moment) for moment in moments]).mean()
    return invariance * invariance_loss + variance * variance_loss + 2 * covariance * covariance_loss


def covariances(embeddings: Tensor, weight: Tensor | None = None) -> Tensor:
    """(D, D) covariances of (N, D) embeddings by their (N,) weights; those of one sample are 0."""
    if weight is None:
        centred = embeddings - embeddings.mean(0)
        return centred.T @ centred / max(1, len(embeddings) - 1)
    counts = weight.to(embeddings)
    centred = embeddings - ops.divide(counts @ embeddings, counts.sum())
    return (counts[:, None] * centred).T @ centred / (counts.sum() - 1).clamp_min(1)


def variance_hinge(covariance: Tensor, deviation: float, epsilon: float) -> Tensor:
    """Mean over the coordinates of [deviation − √(variance + ε)]₊."""
    return (deviation - (covariance.diagonal() + epsilon).sqrt()).relu().mean()


def squared_covariance(covariance: Tensor) -> Tensor:
    """Sum of the squared off-diagonal entries, over the number of coordinates."""
    return (covariance.square().sum() - covariance.diagonal().square().sum()) / len(covariance)
