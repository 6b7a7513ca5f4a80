"""The figures of a report as SVG text: the same study gives the same bytes.

Axes and labels use `currentColor`, so that a figure follows the light or dark colours of its page.
"""

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from equimetric.escaping import one_line
from equimetric.report.palette import MARKERS, PALETTE
from equimetric.studies.judgement import interval_width
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import Column, ComparisonTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["critical_difference_diagram", "interval_plot", "validation_curves"]

_DASHES = ("-", "--", ":", "-.")

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
_LONGEST_NAME = 36


def interval_plot(study: StudyRecord, table: ComparisonTable) -> str | None:
    """The primary metric of every method: mean, 95 % interval, and each seed as a small dot; None if no run finished.

    Methods are in the order of the table. Baselines are hollow diamonds, each with a dashed line through the trained
    methods.
    """
    column = table.columns[0]
    measured = [(row, cell) for row in table.rows if (cell := row.cells[0]) is not None]
    if not measured:
        return None
    appearance = _appearance(table)
    with _figure(height=0.9 + 0.42 * len(measured)) as figure:
        axes = figure.add_subplot()
        for place, (row, interval) in enumerate(measured):
            mean = interval.mean * column.scale
            if row.kind == "baseline":
                colour, marker, fill = _INK, "D", "none"
                axes.axvline(mean, color=colour, alpha=0.35, linewidth=0.8, linestyle=(0, (4, 3)))
            else:
                colour, marker, fill = *appearance[row.method][:2], "full"
            half_width = interval_width(interval) * column.scale
            if half_width > 0:
                axes.errorbar(mean, place, xerr=half_width, color=colour, capsize=3.5, linewidth=1.6)
            if row.seeds > 1:
                seeds = [value * column.scale for value in study.values(row.method, column.metric)]
                # Below the interval, where they do not hide it.
                axes.plot(seeds, [place + 0.27] * len(seeds), ".", markersize=5, color=colour)
            axes.plot(mean, place, marker, markersize=7.5, color=colour, fillstyle=fill)
        axes.set_yticks(range(len(measured)), [_short(row.label) for row, _ in measured])
        axes.set_ylim(len(measured) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(_axis_label(column))
        axes.grid(axis="x")
        return _svg(figure, "intervals")


def validation_curves(study: StudyRecord, table: ComparisonTable) -> str | None:
    """The primary metric on the validation classes against the training step; None if it was never logged.

    A line is the mean over a method's finished runs and its band reaches from the lowest to the highest of them,
    at the steps that all of them logged.
    """
    column = table.columns[0]
    appearance = _appearance(table)
    curves = {row.method: _curve(study, row.method) for row in table.rows if row.kind == "trained"}
    curves = {method: curve for method, curve in curves.items() if curve}
    if not curves:
        return None
    columns = 3 if all(len(method) <= 24 for method in curves) else 2
    with _figure(height=3.7 + 0.24 * -(-len(curves) // columns)) as figure:
        axes = figure.add_subplot()
        lines = []
        for method, curve in curves.items():
            colour, marker, dash = appearance[method]
            steps = list(curve)
            values = [[value * column.scale for value in curve[step]] for step in steps]
            means = [sum(at_step) / len(at_step) for at_step in values]
            low, high = [min(at_step) for at_step in values], [max(at_step) for at_step in values]
            axes.fill_between(steps, low, high, color=colour, alpha=0.16, linewidth=0)
            lines += axes.plot(steps, means, marker + dash, color=colour, markevery=max(1, len(steps) // 12))
        axes.set_xlabel("training step")
        axes.set_ylabel(f"validation {_axis_label(column)}")
        axes.grid()
        names = [_short(method) for method in curves]
        figure.legend(lines, names, loc="outside lower center", ncols=min(columns, len(names)))
        return _svg(figure, "curves")


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


def _curve(study: StudyRecord, method: str) -> dict[int, list[float]]:
    """Step → one value per finished run of a method that validated at all, for the steps all of those share."""
    logged = [run.validation(study.primary_metric) for run in study.runs_of(method, "done")]
    logged = [points for points in logged if points]
    if not logged:
        return {}
    shared = set.intersection(*(set(points) for points in logged))
    return {step: [points[step] for points in logged] for step in sorted(shared)}


def _appearance(table: ComparisonTable) -> dict[str, tuple[str, str, str]]:
    """Colour, marker and dash of each trained method; cycles of different lengths, so that combinations repeat late."""
    methods = [row.method for row in table.rows if row.kind == "trained"]
    dashes = [dash for dash in _DASHES for _ in PALETTE]
    looks = zip(cycle(PALETTE), cycle(MARKERS), cycle(dashes), strict=False)
    return dict(zip(methods, islice(looks, len(methods)), strict=True))


def _axis_label(column: Column) -> str:
    return _short(column.heading)


def _short(name: str, longest: int = _LONGEST_NAME) -> str:
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
