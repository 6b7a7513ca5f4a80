"""Papers versus reality: accuracy over the years and relative improvements, as tables and as a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from equimetric.errors import EquimetricError
from equimetric.escaping import one_line
from equimetric.published.improvement import BASES, Accuracy, Base, Improvement, average_by_year
from equimetric.published.names import OUR_DATASETS
from equimetric.report.palette import MARKERS, PALETTE
from equimetric.report.table_data import (
    MISSING,
    PlainTable,
    TableCell,
    TableColumn,
    TableRow,
    format_number,
    record_table,
    text_cell,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["accuracy_table", "draw_improvements", "improvement_records", "improvement_table", "trend_table"]

INK = "#333333"
FORMATS = (".png", ".pdf", ".svg")
FOOTNOTES = (
    "100 · (m − b) / b, with the method's value m and the base's value b.",
    "papers: both values from one paper, that of its own method as later papers quote it; else both from one table.",
)

ACCURACY_FOOTNOTES = (
    "papers: a paper's own method as later papers quote it; contrastive and triplet loss as means over n papers.",
)
APART = 10
"""Sources whose largest accuracies differ by this factor have other units, and scales of their own."""


def accuracy_table(accuracies: Sequence[Accuracy]) -> PlainTable:
    """Accuracy over the years: a row per source and method, a column per data set, in the unit of the source."""
    datasets = _datasets(accuracies)
    found = {(one.source, one.method, one.year, one.dataset): one for one in accuracies}
    rows = []
    for source, method, year in dict.fromkeys((one.source, one.method, one.year) for one in accuracies):
        cells = [text_cell("method", method), TableCell(MISSING if year is None else str(year), {"year": year})]
        for dataset in datasets:
            one = found.get((source, method, year, dataset))
            text = MISSING if one is None else format_number(one.value, 2 if one.value < 1 else 1)
            text += f" (n = {one.n})" if one is not None and one.n > 1 else ""
            cells.append(TableCell(text, {dataset: None if one is None else one.value}))
        rows.append(TableRow((text_cell("source", source), *cells), source))
    columns = (
        *(TableColumn(name, is_text=True) for name in ("source", "method")),
        TableColumn("year"),
        *(TableColumn(dataset) for dataset in datasets),
    )
    return PlainTable("Accuracy over the years", columns, tuple(rows), ACCURACY_FOOTNOTES)


def improvement_table(improvements: Sequence[Improvement], base: Base) -> PlainTable:
    """The improvements over one base: a row per source and method, a column per data set, in percent."""
    chosen = [one for one in improvements if one.base == base]
    datasets = _datasets(chosen)
    percents = {(one.source, one.method, one.year, one.dataset): one.percent for one in chosen}
    rows = []
    for source, method, year in dict.fromkeys((one.source, one.method, one.year) for one in chosen):
        cells = [text_cell("method", method), TableCell(MISSING if year is None else str(year), {"year": year})]
        cells += [_percent_cell(dataset, percents.get((source, method, year, dataset))) for dataset in datasets]
        rows.append(TableRow((text_cell("source", source), *cells), source))
    columns = (
        *(TableColumn(name, is_text=True) for name in ("source", "method")),
        TableColumn("year"),
        *(TableColumn(dataset, "%") for dataset in datasets),
    )
    return PlainTable(f"Relative improvement over {base} loss", columns, tuple(rows), FOOTNOTES)


def improvement_records(improvements: Sequence[Improvement]) -> PlainTable:
    """One row per improvement, with both values, for programs."""
    fields = [*Improvement.__dataclass_fields__, "percent"]
    return record_table("Relative improvements", fields, (one.record() for one in improvements))


def trend_table(improvements: Sequence[Improvement]) -> PlainTable:
    """The mean relative improvement of each year's methods: a row per source and base, a column per year."""
    trends = {
        key: {mean.year: mean for mean in average_by_year(series)} for key, series in _series(improvements).items()
    }
    years = sorted({year for trend in trends.values() for year in trend})
    rows = []
    for (source, base), trend in trends.items():
        cells = [text_cell("improvement", f"{source} over {base}")]
        for year in years:
            mean = trend.get(year)
            cell = _percent_cell(str(year), None if mean is None else mean.percent)
            cells.append(cell if mean is None else replace(cell, text=f"{cell.text} (n = {mean.n})"))
        rows.append(TableRow(tuple(cells), source))
    columns = (
        TableColumn("improvement", is_text=True),
        *(TableColumn(str(year), "%") for year in years),
    )
    footnotes = ("Mean over a year's methods and their data sets; n counts pairs of method and data set.",)
    return PlainTable("Trend over the years of publication", columns, tuple(rows), footnotes)


def draw_improvements(improvements: Sequence[Improvement], file: Path, accuracies: Sequence[Accuracy] = ()) -> Path:
    """A column of panels per base: bars of each source, methods in order of publication, and the trend over the years.

    Sources have scales of their own, so that small bars can be read; the trend shows all of them on one scale.
    `accuracies` are drawn above them, a panel per source: a line per data set through the methods in that order.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    if file.suffix.lower() not in FORMATS:
        raise EquimetricError(f"a figure is a file {', '.join(FORMATS)}, not {file.name!r}; give it such an ending")
    if not improvements:
        raise EquimetricError("there is no improvement to draw; give at least one")
    series = _series(improvements)
    sources = list(dict.fromkeys(source for source, _ in series))
    bases = [base for base in BASES if any(base == one for _, one in series)]
    drawn = list(dict.fromkeys(one.source for one in accuracies))
    columns, lines_above = max(len(bases), len(drawn)), bool(drawn)
    colours = dict(zip(_datasets([*accuracies, *improvements]), cycle(PALETTE), strict=False))
    # Without mathematics, which would typeset a name with two dollar signs.
    with matplotlib.rc_context({"text.parse_math": False}):
        lines = len(sources) + 1 + lines_above
        figure = Figure(figsize=(6.4 * columns, 3.1 * lines), layout="constrained")
        FigureCanvasAgg(figure)
        all_panels = figure.subplots(lines, columns, squeeze=False)
        above, panels = [*all_panels[0, : len(drawn)]], all_panels[lines_above:, : len(bases)]
        for unused in {*all_panels.flat} - {*above, *panels.flat}:
            unused.set_visible(False)
        _draw_accuracies(above, {source: _of(accuracies, source) for source in drawn}, colours)
        for line in panels:
            _share_scale([*line])
        for panel, base in zip(panels[-1], bases, strict=True):
            _draw_trend(panel, {source: series.get((source, base), []) for source in sources})
            panel.set_title(f"trend: over {base} loss, all on one scale", fontsize=10)
        for line, source in zip(panels, sources, strict=False):
            for panel, base in zip(line, bases, strict=True):
                _draw_bars(panel, series.get((source, base), []), colours)
                panel.set_title(one_line(f"{source}: over {base} loss (own scale)"), fontsize=10)
        for panel in panels[:, 0]:
            panel.set_ylabel("relative improvement (%)")
        handles = [Patch(color=colour, label=one_line(dataset)) for dataset, colour in colours.items()]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=150)
    return file


def _draw_accuracies(
    panels: "Sequence[Axes]", sources: Mapping[str, Sequence[Accuracy]], colours: Mapping[str, str]
) -> None:
    """A panel per source with a line per data set; a method without a value on a data set interrupts none."""
    largest = [max(one.value for one in accuracies) for accuracies in sources.values()]
    if largest and min(largest) > 0 and max(largest) < APART * min(largest):
        _share_scale(panels)
    for panel, (source, accuracies) in zip(panels, sources.items(), strict=True):
        methods = list(dict.fromkeys((one.method, one.year) for one in accuracies))
        for dataset, colour in colours.items():
            own = [one for one in accuracies if one.dataset == dataset]
            places = [methods.index((one.method, one.year)) for one in own]
            panel.plot(places, [one.value for one in own], "o-", color=colour, markersize=4)
        averaged = {one.method for one in accuracies if one.n > 1}
        _name_methods(panel, [(f"{method}*" if method in averaged else method, year) for method, year in methods])
        note = " (* mean over papers)" if averaged else ""
        panel.set_title(one_line(f"{source}: over the years{note}"), fontsize=10)
        panel.set_ylabel("accuracy")


def _share_scale(panels: "Sequence[Axes]") -> None:
    for panel in panels[1:]:
        panel.sharey(panels[0])


def _of(accuracies: Sequence[Accuracy], source: str) -> list[Accuracy]:
    return [one for one in accuracies if one.source == source]


def _name_methods(panel: "Axes", methods: Sequence[tuple[str, int | None]]) -> None:
    """Name the places 0, 1, … by methods with their years."""
    labels = [one_line(method) if year is None else one_line(f"{method} {year}") for method, year in methods]
    panel.set_xticks(range(len(methods)), labels, rotation=40, ha="right", rotation_mode="anchor", fontsize=8)
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)


def _draw_bars(panel: "Axes", improvements: Sequence[Improvement], colours: Mapping[str, str]) -> None:
    """One group of bars per method, one bar per data set; a place without a bar has no value."""
    methods = list(dict.fromkeys((one.method, one.year) for one in improvements))
    width = 0.8 / len(colours)
    for offset, (dataset, colour) in enumerate(colours.items()):
        own = [one for one in improvements if one.dataset == dataset]
        places = [methods.index((one.method, one.year)) + (offset + 0.5) * width - 0.4 for one in own]
        panel.bar(places, [one.percent for one in own], width, color=colour)
    _name_methods(panel, methods)
    panel.axhline(0, color=INK, linewidth=0.8)


def _draw_trend(panel: "Axes", sources: Mapping[str, Sequence[Improvement]]) -> None:
    """Every method and data set as a dot, the means of the years as a line."""
    from matplotlib.ticker import MaxNLocator

    shifts = [0.12 * (2 * place - len(sources) + 1) for place in range(len(sources))]
    for (source, series), colour, marker, shift in zip(
        sources.items(), reversed(PALETTE), MARKERS, shifts, strict=False
    ):
        dated = [(one.year + shift, one.percent) for one in series if one.year is not None]
        means = average_by_year(series)
        panel.plot(*zip(*dated, strict=True), marker, color=colour, alpha=0.45, markersize=4) if dated else None
        line = [mean.year + shift for mean in means], [mean.percent for mean in means]
        panel.plot(*line, marker + "-", color=colour, markersize=7, label=one_line(f"{source}, mean of the year"))
    panel.axhline(0, color=INK, linewidth=0.8)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel("year of publication")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8, loc="upper left")


def _series(improvements: Sequence[Improvement]) -> dict[tuple[str, Base], list[Improvement]]:
    """The improvements of each source and base."""
    series: dict[tuple[str, Base], list[Improvement]] = {}
    for one in improvements:
        series.setdefault((one.source, one.base), []).append(one)
    return series


def _datasets(improvements: Sequence[Accuracy | Improvement]) -> list[str]:
    """The data sets in the order of the literature, others behind them."""
    order = list(OUR_DATASETS)
    datasets = dict.fromkeys(one.dataset for one in improvements)
    return sorted(datasets, key=lambda dataset: order.index(dataset) if dataset in order else len(order))


def _percent_cell(name: str, percent: float | None) -> TableCell:
    return TableCell(MISSING if percent is None else format_number(percent, 1, signed=True), {name: percent})
