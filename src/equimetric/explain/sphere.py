"""Distances on the unit sphere, and which negatives a selection keeps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equimetric.explain.weights import evaluation_mode
from equimetric.geometry import unit
from equimetric.objectives import Context, build_objective
from equimetric.pairs import Pairs, TripletBand, Triplets
from equimetric.seeding import derive_seed

__all__ = ["negative_distances", "sphere_density"]

CLASSES, IMAGES = 32, 4
SPREAD = 0.8


def sphere_density(distance: NDArray[np.float64], dim: int) -> NDArray[np.float64]:
    """q(d) ∝ d^{D−2} (1 − d²/4)^{(D−3)/2}: the density of the distance of two random points of the unit sphere of R^D.

    It integrates to 1 over the evenly spaced `distance`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = (dim - 2) * np.log(distance) + (dim - 3) / 2 * np.log(np.maximum(1 - distance**2 / 4, 0))
    density = np.exp(exponent - np.nanmax(exponent))
    density[~np.isfinite(density)] = 0
    return np.asarray(density / np.trapezoid(density, distance))


def negative_distances(selections: Sequence[str], dim: int = 16, seed: int = 0) -> dict[str, NDArray[np.float64]]:
    """Selection → distances of the negatives that it selects from one batch, each as often as it is selected.

    The batch has 32 classes of 4 points each around random places of the unit sphere.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "points on the sphere"))
    labels = torch.arange(CLASSES).repeat_interleave(IMAGES)
    centres = unit(torch.randn(CLASSES, dim, generator=generator, dtype=torch.float64))
    noise = unit(torch.randn(len(labels), dim, generator=generator, dtype=torch.float64))
    points = unit(centres[labels] + SPREAD * noise)
    return {name: selected_distances(name, points, labels, seed) for name in selections}


def selected_distances(selection: str, points: torch.Tensor, labels: torch.Tensor, seed: int) -> NDArray[np.float64]:
    """The distances of the negatives of the pairs or triples that a selection keeps."""
    options: dict[str, Any] = {} if selection == "all" else {"selection": selection}
    objective = build_objective("triplet", options, Context(classes=CLASSES, dim=points.shape[1], images=len(labels)))
    (_, part), *_ = objective.parts()
    with evaluation_mode(part), torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "draws of a selection"))
        pairs = part.pairs(points, labels)
        selected = part.select(pairs)
    distance = torch.cdist(points, points)
    if isinstance(selected, TripletBand):
        selected = selected.triplets()
    if isinstance(selected, Triplets):
        return distance[selected.anchor, selected.negative].numpy()
    assert isinstance(selected, Pairs)
    return distance[selected.negative].numpy()
