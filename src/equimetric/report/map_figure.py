"""Test items in a plane, for papers and for pages without images: one point each, classes told apart by colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from equimetric.escaping import one_line
from equimetric.report.figure import Figure, import_altair
from equimetric.report.palette import PALETTE, SHAPES
from equimetric.runs.profile import EmbeddingMap

__all__ = ["map_figure"]

SIDE = 420


def map_figure(
    name: str, places: EmbeddingMap | None, label: Callable[[int], int], class_name: Callable[[int], str]
) -> Figure | None:
    """The stored map of one method; `label` is the class of a row, `class_name` that of a class; None without a map."""
    if places is None or not len(places.rows):
        return None
    rows = [int(row) for row in places.rows]
    classes = Counter(label(row) for row in rows)
    return Figure(
        "map",
        lambda: draw_map(one_line(name), places, [label(row) for row in rows], class_name),
        f"{len(rows)} items of {len(classes)} classes under {name} in a plane.",
        f"{name}: {len(rows)} items of {len(classes)} whole classes in a plane (t-SNE: neighbours stay close, longer "
        "distances mean little). A class has one colour and shape; several classes may share them.",
    )


def draw_map(name: str, places: EmbeddingMap, labels: list[int], class_name: Callable[[int], str]) -> Any:
    """One mark for each item, in the middle of a square without axes: the coordinates of t-SNE have no unit."""
    alt = import_altair()
    numbers = {label: number for number, label in enumerate(sorted(set(labels)))}
    low = places.places.min(axis=0)
    span = float(np.ptp(places.places, axis=0).max()) or 1.0
    values = [
        {
            "x": round(float(x), 4),
            "y": round(float(y), 4),
            "row": int(row),
            "class": one_line(class_name(label)),
            # Cycles of different lengths, so that combinations repeat late.
            "colour": numbers[label] % len(PALETTE),
            "shape": numbers[label] % len(SHAPES),
        }
        for row, (x, y), label in zip(places.rows, (places.places - low) / span, labels, strict=True)
    ]
    plane = {"axis": None, "scale": alt.Scale(domain=[-0.02, 1.02])}
    return (
        alt.Chart(alt.Data(values=values))
        .mark_point(size=34, strokeWidth=1.3, filled=False)
        .encode(
            x=alt.X("x:Q", **plane),
            y=alt.Y("y:Q", **plane),
            color=alt.Color(
                "colour:N", scale=alt.Scale(domain=list(range(len(PALETTE))), range=list(PALETTE)), legend=None
            ),
            shape=alt.Shape(
                "shape:N", scale=alt.Scale(domain=list(range(len(SHAPES))), range=list(SHAPES)), legend=None
            ),
            tooltip=[alt.Tooltip("class:N"), alt.Tooltip("row:Q")],
        )
        .properties(title=name, width=SIDE, height=SIDE)
    )
