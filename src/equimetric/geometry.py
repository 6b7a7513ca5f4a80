"""How close are two embeddings? A geometry is a similarity, larger = closer; for a distance d it is −d.

A loss written in `pairs.similarity` therefore works in every geometry. `Geometry` describes one of your own:

    canberra = Geometry("canberra", measure=negative_canberra, to_distance=torch.neg)
    em.objective("triplet", geometry=canberra)

`add_geometry(canberra)` lets configurations name it.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.ops.hyperbolic import hyperbolic_distance
from equimetric.ops.noise import negative_noise
from equimetric.ops.products import (
    inner_products,
    negative_distance,
    safe_sqrt,
    squared_chord,
    squared_distance,
    unit,
)
from equimetric.registry import Registry, import_plugins

NUMBER = r"\d+(?:\.\d+)?"
"""Pattern of a number in the name of a geometry."""

FAMILY_NAMES = ("l1", "l3", "linf", "hyperbolic")
"""Some of the names that stand for a geometry of a family."""

CURVATURE, CLIP = 0.1, 2.3
"""Defaults of a hyperbolic geometry: those of hyperbolic vision transformers (Ermolov et al., 2022)."""

__all__ = [
    "BUILT_IN",
    "FAMILY_NAMES",
    "GEOMETRIES",
    "Geometry",
    "HyperbolicGeometry",
    "LpGeometry",
    "add_geometry",
    "find_geometry",
    "safe_sqrt",
    "squared_chord",
    "unit",
]


@dataclass(eq=False)
class Geometry:
    """A similarity of two sets of embeddings. Build one from functions, or in the constructor of a subclass.

    Functions at module level (no lambdas) keep an objective picklable.

    Attributes:
        name: the public name; must differ from those in `GEOMETRIES`.
        measure: (Q, D), (R, D) → (Q, R) similarity, larger = closer, differentiable by both.
        summary: one line for the documentation.
        to_distance: similarity → the distance d that losses with distance margins use; None where there is none.
        to_chord: similarity → Euclidean distance of the *unit* vectors, in [0, 2]; None where it does not follow.
        normalize: whether embeddings are scaled to unit length first, by default.
        symmetric: whether s_ij = s_ji.
        bounded: whether similarities lie in [−1, 1], as cosines do.
        inner_product: whether the similarity is q·r.
        default_margin: margin of triplet losses, by default.

    """

    name: str
    measure: Callable[[Tensor, Tensor], Tensor]
    summary: str = ""
    to_distance: Callable[[Tensor], Tensor] | None = None
    to_chord: Callable[[Tensor], Tensor] | None = None
    normalize: bool = True
    symmetric: bool = True
    bounded: bool = False
    inner_product: bool = False
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
                f"distances on the unit sphere do not follow from the {self.name} geometry; "
                "use one of: cosine, euclidean, sqeuclidean"
            )
        return self.to_chord(similarity)


class LpGeometry(Geometry):
    """s = −‖q − r‖_p = −(Σ_d |q_d − r_d|^p)^{1/p}, p ≥ 1; p = ∞ is the largest difference of a coordinate.

    The names `l1`, `l3`, `l1.5`, `linf` stand for it; `l2` is `euclidean`. Unit length means ‖x‖₂ = 1 for every p.
    """

    def __init__(self, p: float, *, normalize: bool = True) -> None:
        if isinstance(p, bool) or not isinstance(p, int | float) or not p >= 1:
            raise EquimetricError(f"the p of an Lp distance is a number of 1 or more, or inf, got {p!r}")
        super().__init__(
            f"l{p:g}",
            partial(negative_lp_distance, p=float(p)),
            summary=f"s = −‖q − r‖_{p:g}",
            to_distance=torch.neg,
            normalize=normalize,
        )


class HyperbolicGeometry(Geometry):
    """s = −d(q, r), the distance in the Poincaré ball of curvature −c, where trees fit with little distortion.

    Embeddings are tangent vectors at the origin, not longer than `clip`, and the points they lead to are compared:
    d = 2/√c asinh(√c‖u − v‖ / √((1 − c‖u‖²)(1 − c‖v‖²))), u = tanh(√c‖x‖) x / (√c‖x‖). As c goes to 0 this is twice the
    distance of the vectors. The names `hyperbolic` (c = 0.1), `hyperbolic0.5`, `hyperbolic1-clip5` and
    `hyperbolic1-clipinf` stand for it.
    """

    def __init__(self, curvature: float = CURVATURE, clip: float = CLIP) -> None:
        for value, name in ((curvature, "curvature"), (clip, "clip")):
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise EquimetricError(f"the {name} of a hyperbolic geometry is a number above 0, got {value!r}")
        if curvature == inf:
            raise EquimetricError("the curvature of a hyperbolic geometry must be finite")
        super().__init__(
            "hyperbolic"
            + (f"{curvature:g}" if (curvature, clip) != (CURVATURE, CLIP) else "")
            + (f"-clip{clip:g}" if clip != CLIP else ""),
            partial(negative_hyperbolic_distance, curvature=float(curvature), clip=float(clip)),
            summary=f"s = −distance in the Poincaré ball of curvature −{curvature:g}",
            to_distance=torch.neg,
            normalize=False,
            default_margin=0.1,
        )


# Functions, not lambdas: objectives are pickled with their geometry.


def negative_lp_distance(queries: Tensor, references: Tensor, *, p: float) -> Tensor:
    """(Q, R) −‖q − r‖_p, without the (Q, R, D) differences; the gradient at coincident points is 0."""
    # By products of matrices, as for p = 2 by default, coincident points would have a distance.
    return -torch.cdist(queries, references, p=p, compute_mode="donot_use_mm_for_euclid_dist")


def negative_hyperbolic_distance(queries: Tensor, references: Tensor, *, curvature: float, clip: float) -> Tensor:
    """(Q, R) −d of the points that tangent vectors at the origin lead to."""
    return -hyperbolic_distance(queries, references, curvature, clip)


def chord_from_cosine(similarity: Tensor) -> Tensor:
    """√(2 − 2s)."""
    return safe_sqrt(squared_chord(similarity))


def negative_squared_distance(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, R) −‖q − r‖²."""
    return -squared_distance(queries, references)


def chord_from_squared(similarity: Tensor) -> Tensor:
    """√(−s)."""
    return safe_sqrt(-similarity)


def zeros(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, R) zeros."""
    return queries.new_zeros(()).expand(len(queries), len(references))


GEOMETRIES: dict[str, Geometry] = {
    geometry.name: geometry
    for geometry in (
        Geometry(
            "cosine",
            inner_products,
            summary="s = q·r of unit vectors, in [−1, 1]",
            to_distance=chord_from_cosine,
            to_chord=chord_from_cosine,
            bounded=True,
            inner_product=True,
        ),
        Geometry(
            "euclidean",
            negative_distance,
            summary="s = −‖q − r‖",
            to_distance=torch.neg,
            to_chord=torch.neg,
        ),
        Geometry(
            "sqeuclidean",
            negative_squared_distance,
            summary="s = −‖q − r‖²",
            to_distance=torch.neg,
            to_chord=chord_from_squared,
            default_margin=0.2,
        ),
        Geometry(
            "dot",
            inner_products,
            summary="s = q·r of the raw vectors",
            normalize=False,
            inner_product=True,
        ),
        Geometry(
            "snr",
            negative_noise,
            summary="s = −var(q − r) / var(q), the noise-to-signal ratio over the coordinates; not symmetric",
            to_distance=torch.neg,
            symmetric=False,
        ),
        Geometry(
            "none",
            zeros,
            summary="s = 0: nothing is compared, the loss reads the embeddings themselves",
            normalize=False,
        ),
    )
}

BUILT_IN = frozenset(GEOMETRIES)
"""Names of the geometries that losses list."""


class OwnGeometries(Registry[Geometry]):
    """Geometries that were added to `GEOMETRIES`, with the modules that added them."""

    def add(self, name: str, record: Geometry, **options: Any) -> None:
        """Register a geometry under its name."""
        super().add(name, record, **options)
        GEOMETRIES[name] = record

    def forget(self, module: str) -> None:
        """Forget what a module added, before it is imported anew."""
        for name in self.names_of(lambda owner: owner == module):
            GEOMETRIES.pop(name, None)
        super().forget(module)


OWN_GEOMETRIES = OwnGeometries("geometry", "")


def add_geometry(geometry: Geometry) -> Geometry:
    """Register a geometry, so that configurations can name it; a plug-in does so when it is imported."""
    OWN_GEOMETRIES.add(geometry.name, check_new(geometry), module=sys._getframe(1).f_globals["__name__"])
    return geometry


def find_geometry(geometry: str | Geometry) -> Geometry:
    """A geometry by name, or one of the user's own, whose name must be new."""
    if not isinstance(geometry, str):
        return check_new(geometry)
    if geometry not in GEOMETRIES:
        import_plugins()
    if geometry in GEOMETRIES:
        return GEOMETRIES[geometry]
    hyperbolic = re.fullmatch(rf"hyperbolic({NUMBER})?(?:-clip({NUMBER}|inf))?", geometry)
    if hyperbolic is not None:
        return HyperbolicGeometry(float(hyperbolic[1] or CURVATURE), float(hyperbolic[2] or CLIP))
    lp = re.fullmatch(rf"l({NUMBER}|inf)", geometry)
    if lp is None:
        raise unknown_name("geometry", geometry, [*GEOMETRIES, *FAMILY_NAMES])
    p = float(lp[1])
    return GEOMETRIES["euclidean"] if p == 2 else LpGeometry(p)


def check_new(geometry: Geometry) -> Geometry:
    """The geometry, unless another one has its name."""
    if not isinstance(geometry, Geometry):
        raise EquimetricError(
            f"a geometry is a name or a Geometry, not {type(geometry).__name__} {geometry!r}"
            + ("; wrap it as Geometry('name', measure=…)" if callable(geometry) else "")
        )
    if geometry.name in GEOMETRIES and vars(geometry) != vars(GEOMETRIES[geometry.name]):
        raise EquimetricError(f"there is a geometry named {geometry.name!r} already; choose another name")
    return geometry
