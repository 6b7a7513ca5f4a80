"""How close are two embeddings? Each geometry is a similarity matrix, larger = closer, whatever the measure.

A loss written in `pairs.similarity` therefore works in every geometry: for a distance A the similarity is −A.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.ops.products import (
    both_ways,
    few_both_ways,
    few_entries,
    inner_products,
    negative_distance,
    plain_arithmetic,
    pull_rows,
    safe_sqrt,
    squared_chord,
    squared_distance,
    squared_lengths,
    unit,
)

LEAST_POWER = 1e-12
"""Keeps the noise of a constant vector, which has no signal, finite."""

__all__ = ["GEOMETRIES", "Geometry", "find_geometry", "safe_sqrt", "squared_chord", "unit"]


def negative_noise(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, R) −var(q − r) / var(q), variances over the coordinates; not symmetric: the query is the signal.

    With centred vectors −‖q − r‖² / ‖q‖² = [2q, −1, −‖q‖²] · [r, ‖r‖², 1] / ‖q‖²: one matrix product of two more
    dimensions. Lengths are a trifle short, so that coincident points come out at or above 0: a mean over noise above
    zero would count what rounding leaves.
    """
    if references is queries and not plain_arithmetic():
        noise: Tensor = SelfNoise.apply(queries)  # type: ignore[no-untyped-call]
        return noise
    (signals, power, shares), (others, other_power, _) = signals_of(queries), signals_of(references)
    ends = torch.cat([2 * signals, -torch.ones_like(power), -power], 1) * shares
    return ends @ torch.cat([others, other_power, torch.ones_like(other_power)], 1).T


class SelfNoise(torch.autograd.Function):
    """s_ij = (2 x_i·x_j − p_j − p_i) / p_i with p = ‖x‖², within one set: one matrix product back, not two.

    Here x are the centred vectors. With H = G/p by rows, ∂x_i = Σ_j 2 (H + Hᵀ)_ij (x_j − x_i) − 2 x_i Σ_j H_ij s_ij.
    """

    @staticmethod
    def forward(context: Any, vectors: Tensor) -> Tensor:
        """(N, D) → (N, N)."""
        signals, power, shares = signals_of(vectors)
        noise = ((signals * (2 * shares)) @ signals.T).addcmul_(shares, power.T, value=-1).sub_(power * shares)
        context.save_for_backward(vectors, noise, signals, shares)
        return noise

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        """As the formula says; a step common to all coordinates changes no centred vector."""
        vectors, noise, signals, shares = context.saved_tensors
        if torch.is_grad_enabled():
            # Where the slope itself is differentiated, these are once more functions of the vectors.
            signals, _, shares = signals_of(vectors)
        few = few_entries(gradients[0])
        if few is None:
            own = torch.linalg.vecdot(gradients[0], noise)[:, None] * shares
            pull = both_ways(gradients[0], lambda rows, sums: pull_rows(sums, signals[rows], signals), shares[:, 0])
        else:
            row, column = few.indices()
            slope = few.values() * shares[row, 0]
            own = torch.zeros_like(shares).index_add_(0, row, (slope * noise[row, column])[:, None])
            pull = pull_rows(few_both_ways(few.indices(), slope, len(signals)), signals, signals)
        return centred(torch.addcmul(pull, signals, own, value=-1)).mul_(2)


def signals_of(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centred vectors, their (N, 1) powers, a trifle short, and what to multiply by to divide by these."""
    signals = centred(vectors)
    power = squared_lengths(signals)[:, None]
    return signals, power, (power + LEAST_POWER).reciprocal()


def centred(vectors: Tensor) -> Tensor:
    """Vectors less the mean of their coordinates."""
    return vectors - vectors.mean(1, keepdim=True)


@dataclass(frozen=True)
class Geometry:
    """A named similarity of two sets of embeddings.

    Attributes:
        name: the public name.
        summary: one line for people.
        measure: (Q, D), (R, D) → (Q, R) similarity, larger = closer.
        to_distance: similarity → the distance that losses with distance margins use; None where there is none.
        to_chord: similarity → Euclidean distance of the *unit* vectors, in [0, 2]; None where unknown.
        normalize: whether embeddings are scaled to unit length first unless the user says otherwise.
        symmetric: whether s_ij = s_ji.
        default_margin: by how much a negative of a triple must be farther than the positive, unless the user says.

    """

    name: str
    summary: str
    measure: Callable[[Tensor, Tensor], Tensor]
    to_distance: Callable[[Tensor], Tensor] | None
    to_chord: Callable[[Tensor], Tensor] | None
    normalize: bool = True
    symmetric: bool = True
    default_margin: float = 0.05

    def distance(self, similarity: Tensor) -> Tensor:
        """The distance behind a similarity of this geometry."""
        if self.to_distance is None:
            raise EquimetricError(f"the {self.name} geometry has no distance; use one of: euclidean, cosine, snr")
        return self.to_distance(similarity)

    def chord(self, similarity: Tensor) -> Tensor:
        """The Euclidean distance of the unit vectors behind a similarity of this geometry."""
        if self.to_chord is None:
            raise EquimetricError(
                f"distances on the unit sphere cannot be told from the {self.name} geometry; "
                "use one of: cosine, euclidean, sqeuclidean"
            )
        return self.to_chord(similarity)


def _euclidean_from_cosine(similarity: Tensor) -> Tensor:
    return safe_sqrt(squared_chord(similarity))


GEOMETRIES: dict[str, Geometry] = {
    geometry.name: geometry
    for geometry in (
        Geometry(
            name="cosine",
            summary="s = q·r of unit vectors, in [−1, 1]",
            measure=inner_products,
            to_distance=_euclidean_from_cosine,
            to_chord=_euclidean_from_cosine,
        ),
        Geometry(
            name="euclidean",
            summary="s = −‖q − r‖",
            measure=negative_distance,
            to_distance=torch.neg,
            to_chord=torch.neg,
        ),
        Geometry(
            name="sqeuclidean",
            summary="s = −‖q − r‖²",
            measure=lambda queries, references: -squared_distance(queries, references),
            to_distance=torch.neg,
            to_chord=lambda similarity: safe_sqrt(-similarity),
            default_margin=0.2,
        ),
        Geometry(
            name="dot",
            summary="s = q·r of the raw vectors",
            measure=inner_products,
            to_distance=None,
            to_chord=None,
            normalize=False,
        ),
        Geometry(
            name="snr",
            summary="s = −var(q − r) / var(q), the noise-to-signal ratio over the coordinates; not symmetric",
            measure=negative_noise,
            to_distance=torch.neg,
            to_chord=None,
            symmetric=False,
        ),
        Geometry(
            name="none",
            summary="s = 0: nothing is compared, as the loss looks at the embeddings themselves",
            measure=lambda queries, references: queries.new_zeros(()).expand(len(queries), len(references)),
            to_distance=None,
            to_chord=None,
            normalize=False,
        ),
    )
}


def find_geometry(name: str) -> Geometry:
    """A geometry by name; a misspelt name is an error that gives the nearest."""
    if name not in GEOMETRIES:
        raise unknown_name("geometry", name, GEOMETRIES)
    return GEOMETRIES[name]
