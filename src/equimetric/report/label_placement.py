"""Names beside the points of a figure, placed so that none covers another or seems to belong to another point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["LabelOffset", "place_labels"]

CHARACTER, LINE = 6.4, 13.0
"""Width and height of a letter of 11 pixels."""

POINT = 6.0
"""Half the width of a point."""

CLEARANCE = 6.0
"""Pixels that a name without a line is nearer to its own point than to others, and one with a line keeps off them."""


@dataclass(frozen=True)
class LabelOffset:
    """Where a name stands: pixels from its point, and which end of it."""

    dx: float
    dy: float
    align: Literal["left", "right"]

    @property
    def is_far(self) -> bool:
        """Whether a line has to join the name and its point."""
        return abs(self.dy) > BESIDE

    @property
    def line_end(self) -> tuple[float, float]:
        """Where that line ends: pixels from the point."""
        return self.dx, self.dy - math.copysign(LINE / 2, self.dy)


BESIDE = 12.0
"""Up to this many pixels above or below its point a name stands beside it."""

LABEL_OFFSETS = tuple(
    offset
    for dy in (-7.0, BESIDE, 3.5, -18.0, 23.0)
    for offset in (LabelOffset(9.0, dy, "left"), LabelOffset(-9.0, dy, "right"))
)
"""What is tried for a name, best first."""

FAR_OFFSETS = tuple(
    sorted(
        (
            LabelOffset(dx, sign * dy, align)
            for dy in (30.0, 45.0, 60.0, 80.0, 100.0, 130.0, 160.0)
            for sign in (-1, 1)
            for dx in (-120.0, -80.0, -40.0, 0.0, 40.0)
            for align in ("left", "right")
        ),
        key=lambda offset: offset.dx**2 + offset.dy**2,
    )
)
"""What is tried then for a name that must stand."""

Point = tuple[float, float]
Box = tuple[float, float, float, float]


def place_labels(
    points: Sequence[tuple[float, float, str]], width: float, height: float, needed: int = 0, widest: float = 0.0
) -> list[LabelOffset | None]:
    """An offset for the name of each point (x, y, name), in pixels of a width × height plane; None where none is free.

    Names that come first are placed first; the first `needed` may stand far from their points. Offsets also fit the
    plane stretched to the width `widest`.
    """
    stretches = (1.0, max(1.0, widest / width))
    planes = [Plane([(stretch * x, y) for x, y, _ in points], stretch * width, height) for stretch in stretches]
    offsets: list[LabelOffset | None] = []
    for place, (_, _, name) in enumerate(points):
        tried = [(offset, False) for offset in LABEL_OFFSETS]
        if place < needed:
            tried += [(offset, over_points) for over_points in (False, True) for offset in FAR_OFFSETS]
        free = (offset for offset, over in tried if all(plane.has_room(place, offset, name, over) for plane in planes))
        offset = next(free, None)
        if offset is not None:
            for plane in planes:
                plane.add(place, offset, name)
        offsets.append(offset)
    return offsets


class Plane:
    """Points, the names that stand already, and the lines that join them."""

    def __init__(self, points: Sequence[Point], width: float, height: float) -> None:
        self.points = points
        self.width = width
        self.height = height
        self.names: list[Box] = []
        self.lines: list[tuple[Point, Point]] = []

    def has_room(self, place: int, offset: LabelOffset, name: str, over_points: bool = False) -> bool:
        """Whether a name at this offset from its point covers nothing and can be taken for no other point's.

        Its line may pass `over_points`.
        """
        x, y = self.points[place]
        box = label_box(x, y, offset, name)
        left, top, right, bottom = box
        if left < 0 or right > self.width or top < 0 or bottom > self.height:
            return False
        if any(overlap(box, other) for other in self.names) or any(crosses(*line, box) for line in self.lines):
            return False
        others = [point for number, point in enumerate(self.points) if number != place]
        if not offset.is_far:
            own = box_distance(box, (x, y))
            return all(box_distance(box, other) >= own + CLEARANCE for other in others)
        if any(box_distance(box, other) < POINT + CLEARANCE for other in others):
            return False
        end = (x + offset.line_end[0], y + offset.line_end[1])
        # A line begins within points that lie over its own.
        kept = [] if over_points else [point_box(other) for other in others if math.dist(other, (x, y)) > 2 * POINT]
        return not any(crosses((x, y), end, other) for other in (*self.names, *kept))

    def add(self, place: int, offset: LabelOffset, name: str) -> None:
        """Let a name stand."""
        x, y = self.points[place]
        self.names.append(label_box(x, y, offset, name))
        if offset.is_far:
            self.lines.append(((x, y), (x + offset.line_end[0], y + offset.line_end[1])))


def label_box(x: float, y: float, offset: LabelOffset, name: str) -> Box:
    """Left, top, right and bottom of a name."""
    length = CHARACTER * len(name)
    left = x + offset.dx - (length if offset.align == "right" else 0)
    middle = y + offset.dy
    return left, middle - LINE / 2, left + length, middle + LINE / 2


def point_box(point: Point) -> Box:
    """Left, top, right and bottom of a point."""
    x, y = point
    return x - POINT, y - POINT, x + POINT, y + POINT


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes cover one another in part."""
    return one[0] < other[2] and one[2] > other[0] and one[1] < other[3] and one[3] > other[1]


def box_distance(box: Box, point: Point) -> float:
    """The distance of a point from the nearest place of a box."""
    left, top, right, bottom = box
    x, y = point
    return math.hypot(max(left - x, 0.0, x - right), max(top - y, 0.0, y - bottom))


def crosses(start: Point, end: Point, box: Box) -> bool:
    """Whether the line from one point to another passes through a box."""
    # The part of the line between each two sides, as shares of its length.
    first, last = 0.0, 1.0
    for axis in (0, 1):
        length, low, high = end[axis] - start[axis], box[axis] - start[axis], box[axis + 2] - start[axis]
        if length == 0:
            if low >= 0 or high <= 0:
                return False
            continue
        near, far = sorted((low / length, high / length))
        first, last = max(first, near), min(last, far)
    return first < last
