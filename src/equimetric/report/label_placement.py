"""Names beside the points of a figure, placed so that none covers another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["LabelOffset", "place_labels"]

CHARACTER, LINE = 6.4, 13.0
"""Width and height of a letter of 11 pixels."""

POINT = 6.0


@dataclass(frozen=True)
class LabelOffset:
    """Where a name stands: pixels from its point, and which end of it."""

    dx: float
    dy: float
    align: Literal["left", "right"]

    @property
    def is_far(self) -> bool:
        """Whether a line has to join the name and its point."""
        return self in FAR_OFFSETS


LABEL_OFFSETS = tuple(
    offset
    for dy in (-7.0, 12.0, 3.5, -18.0, 23.0)
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
"""What is tried then for a name that must stand: it needs a line to its point."""

Box = tuple[float, float, float, float]


def place_labels(
    points: Sequence[tuple[float, float, str]], width: float, height: float, needed: int = 0
) -> list[LabelOffset | None]:
    """An offset for the name of each point (x, y, name), in pixels of a width × height plane; None where none is free.

    Names that come first are placed first; the first `needed` may stand far from their points.
    """
    taken: list[Box] = [(x - POINT, y - POINT, x + POINT, y + POINT) for x, y, _ in points]
    offsets: list[LabelOffset | None] = []
    for place, (x, y, name) in enumerate(points):
        tried = (*LABEL_OFFSETS, *FAR_OFFSETS) if place < needed else LABEL_OFFSETS
        boxes = ((offset, label_box(x, y, offset, name)) for offset in tried)
        free = ((offset, box) for offset, box in boxes if is_free(box, taken, width, height))
        offset, box = next(free, (None, None))
        if box is not None:
            taken.append(box)
        offsets.append(offset)
    return offsets


def label_box(x: float, y: float, offset: LabelOffset, name: str) -> Box:
    """Left, top, right and bottom of a name."""
    length = CHARACTER * len(name)
    left = x + offset.dx - (length if offset.align == "right" else 0)
    middle = y + offset.dy
    return left, middle - LINE / 2, left + length, middle + LINE / 2


def is_free(box: Box, taken: Sequence[Box], width: float, height: float) -> bool:
    """Whether a box lies within the plane and covers none of the others."""
    left, top, right, bottom = box
    inside = left >= 0 and right <= width and top >= 0 and bottom <= height
    return inside and not any(left < r and right > o and top < b and bottom > t for o, t, r, b in taken)
