"""Figures that explain rather than measure: the sphere, PADS' distribution, digits in a plane, valid-triplet mining."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from equimetric.explain.mining import mining_sketch
from equimetric.explain.planes import digit_planes
from equimetric.explain.sphere import negative_distances, sphere_density
from equimetric.report.figure import Figure, import_altair
from equimetric.report.palette import PALETTE, WORD_COLOURS, line_styles

__all__ = ["mining_figure", "pads_figure", "plane_figures", "selection_figure", "sphere_figure"]

DIMS = (2, 4, 16, 64, 512)
SELECTIONS = {
    "all": "all negatives",
    "hard": "hard",
    "semihard": "semi-hard",
    "distance_weighted": "distance-weighted",
    "pads": "PADS, at its start",
}
SELECTION_DIM = 16


def sphere_figure() -> Figure:
    """How distances of random points crowd at √2 as dimensions grow."""
    return Figure(
        "sphere",
        draw_sphere,
        "Density of the distance of two random points on the unit sphere, for several dimensions.",
        "Two random points of the unit sphere: the more dimensions, the closer is their distance to √2 ≈ 1.41. A "
        "negative drawn at random is therefore almost always an easy one.",
    )


def draw_sphere() -> Any:
    """One line for each dimension."""
    alt = import_altair()
    distance = np.linspace(0.005, 1.995, 200)
    names = [f"{dim} dimensions" for dim in DIMS]
    values = [
        {"distance": round(float(d), 3), "density": round(float(q), 4), "dimensions": name}
        for dim, name in zip(DIMS, names, strict=True)
        for d, q in zip(distance, sphere_density(distance, dim), strict=True)
    ]
    return lines(alt, values, names, "dimensions", "distance:Q", "distance of two points", "density:Q", "density")


@lru_cache(maxsize=1)
def example_distances() -> dict[str, Any]:
    """Distances of the negatives that each selection takes of one batch."""
    return negative_distances(tuple(SELECTIONS), SELECTION_DIM)


def selection_figure() -> Figure:
    """Which of a batch's negatives each selection takes."""
    return Figure(
        "selections",
        draw_selections,
        "Histogram of the distances of the negatives that each selection takes from one batch.",
        f"What selections take from one batch of 32 classes × 4 points in {SELECTION_DIM} dimensions: "
        "hard and semi-hard the near negatives, distance-weighted all distances below 1.4 alike, PADS by a "
        "distribution that it adapts.",
    )


def draw_selections() -> Any:
    """One line for each selection, as a share of what it takes."""
    alt = import_altair()
    edges = np.linspace(0.4, 2.0, 33)
    values = []
    for selection, name in SELECTIONS.items():
        shares = np.histogram(example_distances()[selection], edges)[0] / max(1, len(example_distances()[selection]))
        values += [
            {"distance": round(float(middle), 3), "share": round(100 * float(share), 3), "selection": name}
            for middle, share in zip((edges[1:] + edges[:-1]) / 2, shares, strict=True)
        ]
    names = list(SELECTIONS.values())
    return lines(
        alt,
        values,
        names,
        "selection",
        "distance:Q",
        "distance of the negative",
        "share:Q",
        "share of those taken (%)",
    )


def lines(alt: Any, values: list[dict[str, Any]], names: Sequence[str], field: str, *axes: str) -> Any:
    """Lines that colour and dash tell apart; the axes are x, its title, y, its title."""
    look = line_styles(names)
    x, x_title, y, y_title = axes
    return (
        alt.Chart(alt.Data(values=values))
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X(x, title=x_title),
            y=alt.Y(y, title=y_title),
            color=alt.Color(
                f"{field}:N",
                scale=alt.Scale(domain=list(names), range=[look[name].colour for name in names]),
                legend=alt.Legend(columns=2, symbolType="stroke", symbolStrokeWidth=3, symbolSize=300),
            ),
            strokeDash=alt.StrokeDash(
                f"{field}:N", scale=alt.Scale(domain=list(names), range=[list(look[name].dash) for name in names])
            ),
            tooltip=[f"{field}:N", x, y],
        )
        .properties(width="container", height=240)
    )


def pads_figure(name: str, history: Sequence[Mapping[str, Any]], number: int = 0) -> Figure | None:
    """The distribution of the distances of negatives that PADS draws, over training; None where it was not logged."""
    logged = [(int(line["step"]), bins) for line in history if (bins := read_bins(line.get("learner")))]
    if not logged:
        return None
    return Figure(
        f"pads-{number + 1}",
        lambda: draw_pads(logged),
        f"Probability of each bin of distances from which {name} draws negatives, against the training step.",
        f"{name}: the probability of the bins of distances from which negatives are drawn, as its policy adapts them.",
    )


def read_bins(figures: Any) -> list[tuple[float, float]]:
    """(upper end, probability) of the bins that a line of the log of PADS has."""
    if not isinstance(figures, Mapping):
        return []
    bins = []
    for key, value in figures.items():
        match = re.fullmatch(r"negatives (up to|above) ([0-9.]+)", str(key))
        if match:
            bins.append((float(match[2]) + (0.05 if match[1] == "above" else 0.0), float(value)))
    return bins


def draw_pads(logged: Sequence[tuple[int, list[tuple[float, float]]]]) -> Any:
    """Coloured cells: steps across, distances up."""
    alt = import_altair()
    values = [
        {"step": step, "distance": round(edge, 3), "probability": round(100 * probability, 4)}
        for step, bins in logged
        for edge, probability in bins
    ]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_rect()
        .encode(
            x=alt.X("step:O", title="training step", axis=alt.Axis(labelOverlap=True)),
            y=alt.Y(
                "distance:O",
                sort="descending",
                title="distance of the negative, up to",
                axis=alt.Axis(labelOverlap=True),
            ),
            color=alt.Color(
                "probability:Q", scale=alt.Scale(scheme="viridis"), legend=alt.Legend(title="probability (%)")
            ),
            tooltip=["step:O", "distance:O", alt.Tooltip("probability:Q", title="probability (%)")],
        )
        .properties(width="container", height=240)
    )


@lru_cache(maxsize=1)
def planes() -> Any:
    """The two spaces of digits."""
    return digit_planes()


def plane_figures() -> list[Figure]:
    """The two spaces of digits in a plane, with what is measured of each."""
    return [
        Figure(
            f"digits-{number}",
            lambda plane=plane: draw_plane(plane),  # type: ignore[misc]
            f"Ten digits in a plane, {plane.name}.",
            f"Digits {plane.name}: recall@1 {100 * plane.recall:.1f} %, OPIS {1e3 * plane.opis:.2f} ×10⁻³.",
        )
        for number, plane in enumerate(planes(), start=1)
    ]


def draw_plane(plane: Any) -> Any:
    """Every point as its digit."""
    alt = import_altair()
    values = [
        {"x": round(float(x), 3), "y": round(float(y), 3), "digit": str(digit)}
        for (x, y), digit in zip(plane.points, plane.labels, strict=True)
    ]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_text(fontSize=11, fontWeight=600)
        .encode(
            x=alt.X("x:Q", title="first coordinate", scale=alt.Scale(domain=[-0.8, 4.8])),
            y=alt.Y("y:Q", title="second coordinate", scale=alt.Scale(domain=[-0.8, 1.8])),
            text="digit:N",
            color=alt.Color("digit:N", scale=alt.Scale(range=list(WORD_COLOURS)), legend=None),
        )
        .properties(width="container", height=200)
    )


def mining_figure(epsilon: float = 0.1) -> Figure:
    """What valid-triplet hard mining keeps of the pairs of one anchor."""
    return Figure(
        "mining",
        lambda: draw_mining(epsilon),
        "The positives and negatives of one anchor by their cosine; those that valid-triplet mining keeps are filled.",
        f"Valid-triplet hard mining (VTHM), λ = {epsilon:g}: of one anchor it keeps the positives below the closest "
        "negative plus λ, and the negatives above the farthest positive less λ. Filled: kept. Lines: the two bounds.",
    )


def draw_mining(epsilon: float) -> Any:
    """Two rows of points and the two bounds."""
    alt = import_altair()
    sketch = mining_sketch(epsilon)
    values = [
        {"cosine": cosine, "kind": kind, "kept": kept, "pair": "kept" if kept else "left out"}
        for kind, pairs in (("positive", sketch.positives), ("negative", sketch.negatives))
        for cosine, kept in pairs
    ]
    bounds = [
        {"cosine": sketch.positive_bound, "kind": "positive", "words": "positives below"},
        {"cosine": sketch.negative_bound, "kind": "negative", "words": "negatives above"},
    ]
    kinds = alt.Scale(domain=["positive", "negative"], range=[PALETTE[2], PALETTE[0]])
    colour = alt.Color("kind:N", scale=kinds, legend=None)
    x = alt.X("cosine:Q", title="cosine of the pair with the anchor", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("kind:N", sort=["positive", "negative"], title=None)
    points = (
        alt.Chart(alt.Data(values=values))
        .mark_point(size=150, strokeWidth=2.4)
        .encode(
            x=x,
            y=y,
            color=colour,
            fill=alt.condition("datum.kept", alt.Color("kind:N", scale=kinds, legend=None), alt.value("transparent")),
            shape=alt.condition("datum.kind == 'positive'", alt.value("circle"), alt.value("square")),
            tooltip=["kind:N", "cosine:Q", "pair:N"],
        )
    )
    base = alt.Chart(alt.Data(values=bounds)).encode(x=x)
    rules = base.mark_rule(strokeWidth=1.8, strokeDash=[5, 3]).encode(color=colour)
    # Words stand on the side of their bound that has more room.
    words = [
        base.transform_filter(f"datum.cosine {side}")
        .mark_text(align=align, dx=dx, dy=-32, fontSize=11)
        .encode(y=y, text="words:N")
        for side, align, dx in (("<= 0.5", "left", 5), ("> 0.5", "right", -5))
    ]
    return alt.layer(rules, points, *words).properties(width="container", height=150)
