"""The critical-difference diagram as SVG text: the same ranks give the same bytes.

Axes and labels use `currentColor`, so that a figure follows the light or dark colours of its page.
"""

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from equimetric.escaping import one_line
from equimetric.report.palette import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["critical_difference_diagram"]

# A colour that nothing else uses, replaced by `currentColor` in the SVG.
_INK = "#010203"

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "equimetric",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.parse_math": False,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "lines.markersize": 4.5,
}

_WIDTH_INCHES = 6.6


def critical_difference_diagram(
    mean_ranks: Mapping[str, float], different: Iterable[tuple[str, str]], critical_difference: float | None = None
) -> str:
    """Mean ranks of methods over data sets on a line, best on the left; a bar joins methods that are not `different`.

    A bar above the line has the length of the critical difference, where it is given. Drawn by scikit-posthocs.
    """
    import pandas

    from equimetric.extras import import_extra

    posthocs = import_extra("scikit_posthocs", "a critical-difference diagram", "scikit-posthocs", "statistics")
    # Names stand on both sides of the line.
    names = {method: _short(method, longest=24) for method in mean_ranks}
    if len(set(names.values())) < len(names):
        names = {method: f"{number}. {short}" for number, (method, short) in enumerate(names.items(), start=1)}
    p_values = pandas.DataFrame(1.0, index=list(names.values()), columns=list(names.values()))
    for one, other in different:
        p_values.loc[names[one], names[other]] = p_values.loc[names[other], names[one]] = 0.0
    with _figure(height=1.0) as figure:
        axes = figure.add_subplot()
        drawn = posthocs.critical_difference_diagram(
            {names[method]: rank for method, rank in mean_ranks.items()},
            p_values,
            ax=axes,
            label_fmt_left="{label} ({rank:.2f}) ",
            label_fmt_right=" ({rank:.2f}) {label}",
            marker_props={"color": _INK, "s": 14},
            elbow_props={"color": _INK, "linewidth": 0.7},
            # A dot on every member: a bar may pass over methods that do not belong to it.
            crossbar_props={"color": PALETTE[0], "linewidth": 2.6, "marker": "o"},
        )
        axes.spines["top"].set_visible(True)
        lowest = min(label.get_position()[1] for label in drawn["labels"]) - 0.6
        highest = 1.2
        if critical_difference is not None:
            best = min(mean_ranks.values())
            axes.plot([best, best + critical_difference], [2.2, 2.2], color=_INK, linewidth=1.4, marker="|")
            axes.text(
                best + critical_difference / 2, 2.6, f"critical difference {critical_difference:.2f}", ha="center"
            )
            highest = 3.4
        axes.set_ylim(lowest, highest)
        figure.set_figheight(0.22 * (highest - lowest))
        return _svg(figure, "critical-difference")


def _short(name: str, longest: int) -> str:
    """One line, shortened in the middle: the names of variants differ at the end."""
    name = one_line(name)
    return name if len(name) <= longest else f"{name[: longest // 2]}…{name[1 - longest // 2 :]}"


@contextmanager
def _figure(height: float) -> "Iterator[Figure]":
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        # From the defaults, so that a user's matplotlib settings do not change the figure.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        # The browser chooses the font; a glyph that is missing here does not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")


def _svg(figure: "Figure", name: str) -> str:
    """The figure as one <svg> element, its ids prefixed by `name`, so that figures can share a page."""
    stream = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(stream, format="svg", transparent=True, metadata=no_metadata)
    document = stream.getvalue()

    def adapt(tag: re.Match[str]) -> str:
        return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", tag[0]).replace(_INK, "currentColor")

    # Inside tags only: the text between them is the user's.
    return re.sub(r"<[^<>]+>", adapt, document[document.index("<svg") :])
