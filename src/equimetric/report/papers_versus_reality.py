"""Papers versus reality: relative improvements over contrastive and triplet loss as tables and as a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from equimetric.errors import EquimetricError
from equimetric.escaping import one_line
from equimetric.published.improvement import BASES, Base, Improvement, average_by_year
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

__all__ = ["draw_improvements", "improvement_records", "improvement_table", "trend_table"]

INK = "#333333"
FORMATS = (".png", ".pdf", ".svg")
FOOTNOTES = (
    "100 · (m − b) / b, with the method's value m and the base's value b.",
    "papers: both values from one paper, that of its own method as later papers quote it; else both from one table.",
)


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


def draw_improvements(improvements: Sequence[Improvement], file: Path) -> Path:
    """A column of panels per base: bars of each source, methods in order of publication, and the trend over the years.

    Sources have scales of their own, so that small bars can be read; the trend shows all of them on one scale.
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
    colours = dict(zip(_datasets(improvements), cycle(PALETTE), strict=False))
    # Without mathematics, which would typeset a name with two dollar signs.
    with matplotlib.rc_context({"text.parse_math": False}):
        figure = Figure(figsize=(6.4 * len(bases), 3.1 * (len(sources) + 1)), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(sources) + 1, len(bases), squeeze=False, sharey="row")
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


def _draw_bars(panel: "Axes", improvements: Sequence[Improvement], colours: Mapping[str, str]) -> None:
    """One group of bars per method, one bar per data set; a place without a bar has no value."""
    methods = list(dict.fromkeys((one.method, one.year) for one in improvements))
    width = 0.8 / len(colours)
    for offset, (dataset, colour) in enumerate(colours.items()):
        own = [one for one in improvements if one.dataset == dataset]
        places = [methods.index((one.method, one.year)) + (offset + 0.5) * width - 0.4 for one in own]
        panel.bar(places, [one.percent for one in own], width, color=colour)
    labels = [one_line(method) if year is None else one_line(f"{method} {year}") for method, year in methods]
    panel.set_xticks(range(len(methods)), labels, rotation=40, ha="right", rotation_mode="anchor", fontsize=8)
    panel.axhline(0, color=INK, linewidth=0.8)
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)


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


def _datasets(improvements: Sequence[Improvement]) -> list[str]:
    """The data sets in the order of the literature, others behind them."""
    order = list(OUR_DATASETS)
    datasets = dict.fromkeys(one.dataset for one in improvements)
    return sorted(datasets, key=lambda dataset: order.index(dataset) if dataset in order else len(order))


def _percent_cell(name: str, percent: float | None) -> TableCell:
    return TableCell(MISSING if percent is None else format_number(percent, 1, signed=True), {name: percent})
