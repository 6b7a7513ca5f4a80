"""Distances in hyperbolic space, of points given by their tangent vectors at the origin."""

from math import inf, sqrt

import torch
from torch import Tensor

from equimetric.ops.products import safe_sqrt, squared_distance, unit

__all__ = ["hyperbolic_distance"]

FARTHEST = {torch.float32: 20.0, torch.float64: 170.0}
"""Half the distance of a point to the origin, at curvature −1, beyond which products of exponentials overflow."""


def hyperbolic_distance(queries: Tensor, references: Tensor, curvature: float, longest: float = inf) -> Tensor:
    """(Q, D), (R, D) → (Q, R) distances of the points tanh(√c‖x‖) x / (√c‖x‖) of the Poincaré ball of curvature −c.

    Vectors longer than `longest` are cut to that length. In the ball, where the edge is at 1/√c,
    d(u, v) = 2/√c asinh(√c‖u − v‖ / √((1 − c‖u‖²)(1 − c‖v‖²))), which near the edge is a ratio of rounding errors. With
    a = √c‖x‖, b = √c‖y‖ and the unit vectors e, f of both it equals 2/√c asinh √t,
    t = sinh²(a − b) + sinh 2a sinh 2b ‖e − f‖²/4, whose terms are exact at any distance from the origin.
    """
    root = sqrt(curvature)
    ends, directions = polar(queries, root, longest)
    others, towards = (ends, directions) if references is queries else polar(references, root, longest)
    apart = (2 * ends).sinh() * (2 * others).sinh().T * squared_distance(directions, towards) / 4
    squares = (ends - others.T).sinh().square() + apart
    return safe_sqrt(squares).asinh() * (2 / root)


def polar(vectors: Tensor, root: float, longest: float) -> tuple[Tensor, Tensor]:
    """(N, 1) √c times the lengths of vectors, bounded, and the (N, D) unit vectors."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return (root * lengths.clamp_max(longest)).clamp_max(FARTHEST[vectors.dtype]), unit(vectors)
