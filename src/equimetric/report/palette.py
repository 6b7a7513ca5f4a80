"""The colours and markers of all figures."""

from collections.abc import Iterable
from itertools import cycle
from typing import NamedTuple

__all__ = ["MARKERS", "PALETTE", "LineStyle", "line_styles"]

# Okabe and Ito (2008), distinct under every common colour-vision deficiency; without black and yellow, which vanish
# on a dark and on a light page.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "v", "P", "X", "p")
SHAPES = ("circle", "square", "triangle-up", "triangle-down", "diamond", "cross", "triangle-right")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))


class LineStyle(NamedTuple):
    """Colour, marker and dash of a line."""

    colour: str
    shape: str
    dash: tuple[int, ...]


def line_styles(names: Iterable[str]) -> dict[str, LineStyle]:
    """A look for each name; cycles of different lengths, so that combinations repeat late."""
    dashes = [dash for dash in DASHES for _ in PALETTE]
    combinations = zip(names, cycle(PALETTE), cycle(SHAPES), cycle(dashes), strict=False)
    return {name: LineStyle(colour, shape, dash) for name, colour, shape, dash in combinations}
