"""VICReg: variance, invariance and covariance, without negatives."""

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import NotNegative, Positive
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
    invariance: NotNegative = 25.0,
    variance: NotNegative = 25.0,
    covariance: NotNegative = 1.0,
    deviation: Positive = 1.0,
    epsilon: Positive = 1e-4,
) -> Tensor:
    """Positives must coincide while every coordinate varies and no two vary together; raw embeddings.

    L = λ mean_{positives} ‖z − z'‖²/D + μ/2 (v(Z) + v(Z')) + ν (c(Z) + c(Z')), λ, μ, ν = `invariance`, `variance`,
    `covariance`; v(Z) = 1/D Σ_d [deviation − √(Var(Z_d) + ε)]₊, c(Z) = 1/D Σ_{d≠e} Cov(Z)²_de. Z' is the explicit
    reference set where one is given, such as second views with the labels of the first, and else the batch Z itself.
    """
    queries = ops.require.queries(pairs, "vicreg")
    views = [queries.embeddings] if queries.references is None else [queries.embeddings, queries.references]
    apart = ops.mean(-pairs.similarity, pairs.positive, pairs.weight) / queries.embeddings.shape[1]
    weights = [pairs.query_weight, None if pairs.weight is None else pairs.weight.amax(0)]
    moments = torch.stack([spread(*each, deviation, epsilon) for each in zip(views, weights, strict=False)])
    still, common = moments.mean(0).unbind()
    return invariance * apart + variance * still + 2 * covariance * common


def spread(embeddings: Tensor, weight: Tensor | None, deviation: float, epsilon: float) -> Tensor:
    """(2,) v and c of (N, D) embeddings by their (N,) weights; one sample has variance 0."""
    if weight is None:
        centred = embeddings - embeddings.mean(0)
        products = centred.T @ centred / max(1, len(embeddings) - 1)
    else:
        times = weight.to(embeddings)
        centred = embeddings - ops.divide(times @ embeddings, times.sum())
        products = (times[:, None] * centred).T @ centred / (times.sum() - 1).clamp_min(1)
    variances = products.diagonal()
    still = (deviation - (variances + epsilon).sqrt()).relu().mean()
    return torch.stack([still, (products.square().sum() - variances.square().sum()) / len(products)])
