"""Distances in hyperbolic space, of points given by their tangent vectors at the origin."""

from math import inf, sqrt

import torch
from torch import Tensor

from equimetric.ops.products import safe_sqrt, squared_distance, unit

__all__ = ["hyperbolic_distance"]

MAX_RADIUS = {torch.float32: 20.0, torch.float64: 170.0}
"""Half the distance of a point to the origin, at curvature −1, beyond which products of exponentials overflow."""


def hyperbolic_distance(queries: Tensor, references: Tensor, curvature: float, max_norm: float = inf) -> Tensor:
    """(Q, D), (R, D) → (Q, R) distances of the points tanh(√c‖x‖) x / (√c‖x‖) of the Poincaré ball of curvature −c.

    Vectors longer than `max_norm` are cut to that norm. In the ball, where the edge is at 1/√c,
    d(u, v) = 2/√c asinh(√c‖u − v‖ / √((1 − c‖u‖²)(1 − c‖v‖²))), which near the edge is a ratio of rounding errors. With
    a = √c‖x‖, b = √c‖y‖ and the unit vectors e, f of both it equals 2/√c asinh √t,
    t = sinh²(a − b) + sinh 2a sinh 2b ‖e − f‖²/4, whose terms are exact at any distance from the origin.
    """
    root = sqrt(curvature)
    radii, directions = polar(queries, root, max_norm)
    reference_radii, reference_directions = (
        (radii, directions) if references is queries else polar(references, root, max_norm)
    )
    angular = (
        (2 * radii).sinh() * (2 * reference_radii).sinh().T * squared_distance(directions, reference_directions) / 4
    )
    sinh_squared = (radii - reference_radii.T).sinh().square() + angular
    return safe_sqrt(sinh_squared).asinh() * (2 / root)


def polar(vectors: Tensor, root: float, max_norm: float) -> tuple[Tensor, Tensor]:
    """(N, 1) √c times the norms of vectors, bounded, and the (N, D) unit vectors."""
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return (root * norms.clamp_max(max_norm)).clamp_max(MAX_RADIUS[vectors.dtype]), unit(vectors)
