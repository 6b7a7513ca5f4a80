"""A figure: one Altair definition that the page draws in the browser and papers include as SVG, PNG or PDF."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from equimetric.errors import EquimetricError, unknown_name
from equimetric.escaping import one_line, printable
from equimetric.extras import import_extra
from equimetric.files import write_atomically
from equimetric.report.palette import PALETTE

if TYPE_CHECKING:
    from altair import TopLevelMixin

__all__ = ["FIGURE_FORMATS", "VEGA_LITE", "Figure", "import_altair", "render_figure", "write_figures"]

VEGA_LITE = "6.4"
"""The version of Vega-Lite that Altair writes; vl-convert has several."""

FIGURE_FORMATS = ("svg", "png", "pdf")

PAPER_WIDTH = 460
"""Points of the plotting area where no page gives a width: one column of text."""

TITLE_LETTER = 7
"""Points that a letter of a title takes."""

INK = "currentColor"

FONT = "system-ui, 'Noto Sans', 'DejaVu Sans', sans-serif"

# Lines and words take the colour of the text around them, so that a figure follows the light or dark of its page.
_WORDS = {"labelColor": INK, "titleColor": INK, "labelFontSize": 11.5, "titleFontSize": 11.5, "titleFontWeight": 500}
THEME: dict[str, Any] = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        **_WORDS,
        "labelSeparation": 6,
        "domainColor": INK,
        "domainOpacity": 0.5,
        "tickColor": INK,
        "tickOpacity": 0.5,
        "gridColor": INK,
        "gridOpacity": 0.12,
        "labelLimit": 240,
        "titlePadding": 8,
    },
    "axisY": {"titleAnchor": "middle"},
    "header": {**_WORDS, "labelFontWeight": 600},
    "legend": {**_WORDS, "labelLimit": 240, "orient": "bottom", "title": None, "symbolOpacity": 1, "symbolLimit": 0},
    "title": {"color": INK, "fontSize": 12.5, "anchor": "start", "fontWeight": 600},
    # Translucent marks would lose their contrast.
    "point": {"opacity": 1},
    "text": {"color": INK},
    "rule": {"color": INK},
}


@dataclass(frozen=True, eq=False)
class Figure:
    """What a section draws.

    Attributes:
        name: file name in papers and id in the page.
        draw: makes the Altair chart when it is needed: tables alone need no Altair. Widths of "container" follow the
            page; every axis has a title with its unit.
        description: what it shows, for those who cannot see it.
        caption: how to read it.
        paper_width: points of its plotting area where no page gives a width.
        title: what stands above it in papers; in the page a heading says it.
    """

    name: str
    draw: Callable[[], TopLevelMixin]
    description: str
    caption: str = ""
    paper_width: int = PAPER_WIDTH
    title: str = ""

    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification in the colours of all figures, with the data inside."""
        chart = self.draw()
        spec = chart.to_dict()
        own = spec.pop("config", {})
        # Altair's own theme would fix a size and a font.
        spec["config"] = {**THEME, **{key: value for key, value in own.items() if key not in ("view", *THEME)}}
        spec["description"] = self.description
        if spec.get("width") == "container":
            spec["autosize"] = {"type": "fit-x", "contains": "padding"}
        escaped: dict[str, Any] = json.loads(printable(json.dumps(spec, ensure_ascii=False)))
        return escaped

    def page_spec(self) -> dict[str, Any]:
        """The specification for a page, whose style sheet has the colours for light and for dark."""
        text = json.dumps(self.spec())
        for number, colour in enumerate(PALETTE, start=1):
            text = text.replace(json.dumps(colour), json.dumps(f"var(--series-{number})"))
        themed: dict[str, Any] = json.loads(text)
        return themed


def import_altair() -> Any:
    """Altair, or an error that says how to get it."""
    return import_extra("altair", "a figure of the report", "altair", "report", "read the tables, which need nothing")


def import_converter() -> Any:
    """The package that turns a specification into a bundle or a file."""
    what = "a figure of the report"
    return import_extra("vl_convert", what, "vl-convert-python", "report", "read the tables, which need nothing")


def render_figure(figure: Figure, form: str) -> bytes:
    """The figure as a file for papers: black on white, PNG with 200 points per inch."""
    if form not in FIGURE_FORMATS:
        raise unknown_name("format of figures", form, FIGURE_FORMATS)
    spec = paper_spec(figure.spec(), figure.paper_width)
    if figure.title:
        spec["title"] = wrap(one_line(figure.title), figure.paper_width // TITLE_LETTER)
    convert = import_converter()
    options: dict[str, Any] = {"vl_version": VEGA_LITE}
    if form == "svg":
        return str(convert.vegalite_to_svg(spec, **options)).encode()
    if form == "png":
        return bytes(convert.vegalite_to_png(spec, ppi=200, **options))
    return bytes(convert.vegalite_to_pdf(spec, **options))


def paper_spec(spec: Mapping[str, Any], width: int = PAPER_WIDTH) -> dict[str, Any]:
    """The specification with fixed widths, black words and a white ground."""
    text = json.dumps(spec).replace(json.dumps(INK), '"#000000"')
    fixed: dict[str, Any] = json.loads(text)
    fixed["background"] = "white"
    fixed["config"] = {**deepcopy(fixed["config"]), "background": "white"}
    fix_widths(fixed, width)
    fixed.pop("autosize", None)
    return fixed


def fix_widths(part: Any, width: int) -> None:
    """Replace widths that follow a page, in all views of a specification."""
    if isinstance(part, dict):
        if part.get("width") == "container":
            part["width"] = width
        for key, value in part.items():
            if key not in ("data", "datasets", "encoding"):
                fix_widths(value, width)
    elif isinstance(part, list):
        for value in part:
            fix_widths(value, width)


def write_figures(figures: Iterable[Figure], folder: Path, form: str) -> list[Path]:
    """Write every figure as NAME.svg, .png or .pdf; returns the files."""
    written = []
    for figure in figures:
        file = folder / f"{figure.name}.{form}"
        content = render_figure(figure, form)
        try:
            write_atomically(file, content)
        except OSError as error:
            raise EquimetricError(
                f"cannot write the figures to {folder} ({error.strerror}); choose a writable folder"
            ) from error
        written.append(file)
    return written
