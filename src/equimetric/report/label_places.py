"""Names beside the points of a figure, placed so that none covers another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["LabelPlace", "place_labels"]

CHARACTER, LINE = 6.4, 13.0
"""Width and height of a letter of 11 pixels."""

POINT = 6.0


@dataclass(frozen=True)
class LabelPlace:
    """Where a name stands: pixels from its point, and which end of it."""

    dx: float
    dy: float
    align: Literal["left", "right"]


PLACES = tuple(
    place
    for dy in (-7.0, 12.0, 3.5, -18.0, 23.0)
    for place in (LabelPlace(9.0, dy, "left"), LabelPlace(-9.0, dy, "right"))
)
"""What is tried for a name, best first."""

Box = tuple[float, float, float, float]


def place_labels(points: Sequence[tuple[float, float, str]], width: float) -> list[LabelPlace | None]:
    """A place for the name of each point (x, y, name), in pixels of a plane of some width; None where none is free.

    Names that come first are placed first.
    """
    taken: list[Box] = [(x - POINT, y - POINT, x + POINT, y + POINT) for x, y, _ in points]
    found: list[LabelPlace | None] = []
    for x, y, name in points:
        boxes = ((place, label_box(x, y, place, name)) for place in PLACES)
        free = ((place, box) for place, box in boxes if is_free(box, taken, width))
        place, box = next(free, (None, None))
        if box is not None:
            taken.append(box)
        found.append(place)
    return found


def label_box(x: float, y: float, place: LabelPlace, name: str) -> Box:
    """Left, top, right and bottom of a name."""
    length = CHARACTER * len(name)
    left = x + place.dx - (length if place.align == "right" else 0)
    middle = y + place.dy
    return left, middle - LINE / 2, left + length, middle + LINE / 2


def is_free(box: Box, taken: Sequence[Box], width: float) -> bool:
    """Whether a box lies within the plane and covers none of the others."""
    left, top, right, bottom = box
    inside = left >= 0 and right <= width
    return inside and not any(left < r and right > o and top < b and bottom > t for o, t, r, b in taken)
