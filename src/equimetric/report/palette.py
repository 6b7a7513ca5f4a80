"""The colours and markers of all figures."""

from collections.abc import Iterable
from itertools import cycle
from typing import NamedTuple

__all__ = ["DARK_PALETTE", "MARKERS", "PALETTE", "WORD_COLOURS", "LineStyle", "line_styles", "palette_style"]

# The hues of Okabe and Ito (2008) in lightnesses that stay distinct under every common colour-vision deficiency, with a
# contrast of 3:1 against the page: darker ones for light pages and papers, brighter ones for dark pages.
PALETTE = ("#004fa8", "#a52e05", "#067f57", "#cc6096", "#968804", "#2e8de8")
DARK_PALETTE = ("#5a90fa", "#ee6a10", "#35c884", "#e08cb6", "#f2d72e", "#b4dcfa")
WORD_COLOURS = PALETTE[:3]
"""Those with a contrast of 4.5:1, as words need it."""

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


def palette_style() -> str:
    """The colours as properties of a style sheet, --series-1 and so on, each for light and for dark."""
    pairs = enumerate(zip(PALETTE, DARK_PALETTE, strict=True), start=1)
    colours = " ".join(f"--series-{number}: light-dark({light}, {dark});" for number, (light, dark) in pairs)
    return f":root {{ {colours} }}\n"
