"""The comparison table as data: one row per method, one interval over seeds per metric."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, log10
from statistics import median

from equimetric.errors import EquimetricError
from equimetric.evaluation import METRICS, Metric
from equimetric.studies.records import PLAIN, Kind, StudyRecord
from equimetric.studies.statistics import Interval, t_interval

__all__ = ["Column", "ComparisonTable", "Row", "comparison_table", "format_duration"]

_MISSING = "–"


@dataclass(frozen=True)
class Column:
    """One metric: fractions in percent, other values unscaled, with the decimals that the intervals need."""

    metric: str
    percent: bool
    decimals: int

    @property
    def heading(self) -> str:
        """The metric's name, with its unit."""
        return f"{self.metric} (%)" if self.percent else self.metric

    def number(self, value: float) -> str:
        """A value of this metric in the column's unit and precision."""
        return f"{value * self.scale:.{self.decimals}f}"

    @property
    def scale(self) -> float:
        """Factor from stored to displayed values."""
        return 100.0 if self.percent else 1.0


@dataclass(frozen=True)
class Row:
    """One method: an interval per column (None where no run measured it), and its finished and failed runs."""

    method: str
    kind: Kind
    cells: tuple[Interval | None, ...]
    done: int
    failed: int
    seconds: float | None
    parameters: int | None

    @property
    def label(self) -> str:
        """The method's name, with a flag where it is a baseline."""
        return f"{self.method} (baseline)" if self.kind == "baseline" else self.method

    @property
    def runs(self) -> str:
        """Number of runs behind the intervals, and of failed ones."""
        return f"{self.done} of {self.done + self.failed}, {self.failed} failed" if self.failed else str(self.done)

    @property
    def duration(self) -> str:
        """Mean time of a finished run in a readable unit."""
        return _MISSING if self.seconds is None else format_duration(self.seconds)

    @property
    def size(self) -> str:
        """Number of parameters of the model, rounded to three digits."""
        if self.parameters is None:
            return _MISSING
        for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
            # From 999.5 on, three digits round to the next unit.
            if self.parameters >= 0.9995 * unit:
                return f"{self.parameters / unit:#.3g}".rstrip(".") + f" {name}"
        return str(self.parameters)


@dataclass(frozen=True)
class ComparisonTable:
    """Baselines, then trained methods, each by descending primary metric, which is the first column."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[str, ...]

    @property
    def headings(self) -> tuple[str, ...]:
        """The heading line of the text formats."""
        return ("method", "runs", *(column.heading for column in self.columns), "time per run", "parameters")

    def texts(self, row: Row) -> tuple[str, ...]:
        """The line of one method in the text formats, unescaped."""
        cells = (self._cell_text(column, cell, row) for column, cell in zip(self.columns, row.cells, strict=True))
        return (row.label, row.runs, *cells, row.duration, row.size)

    @staticmethod
    def _cell_text(column: Column, cell: Interval | None, row: Row) -> str:
        if cell is None:
            return _MISSING
        text = column.number(cell.mean)
        if cell.n > 1:
            text += f" ± {column.number(cell.half_width)}"
        return text if cell.n == row.done else f"{text} (n = {cell.n})"


def format_duration(seconds: float) -> str:
    """'9.8 s', '14 s', '2.5 min', '3.1 h'."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def comparison_table(study: StudyRecord) -> ComparisonTable:
    """Mean and 95 % t-interval over seeds, of every method and displayed metric of a study."""
    measured = [metric for run in study.runs if run.status == "done" for metric in run.metrics]
    metrics = tuple(dict.fromkeys([study.primary_metric, *(study.shown or measured)]))
    rows = tuple(sorted((_row(study, method, metrics) for method in study.methods), key=_rank))
    columns = tuple(_column(study, metric, (row.cells[place] for row in rows)) for place, metric in enumerate(metrics))
    return ComparisonTable(title=study.title, columns=columns, rows=rows, footnotes=tuple(_footnotes(rows, metrics)))


def _row(study: StudyRecord, method: str, metrics: tuple[str, ...]) -> Row:
    done = study.runs_of(method, "done")
    values = (study.values(method, metric) for metric in metrics)
    return Row(
        method=method,
        kind=study.kind_of(method),
        cells=tuple(t_interval(measured) if measured else None for measured in values),
        done=len(done),
        failed=len(study.runs_of(method, "failed")),
        seconds=sum(run.seconds for run in done) / len(done) if done else None,
        parameters=max(run.parameters for run in done) if done else None,
    )


def _rank(row: Row) -> tuple[bool, float, str]:
    primary = row.cells[0]
    return row.kind != "baseline", float("inf") if primary is None else -primary.mean, row.method


def _column(study: StudyRecord, metric: str, cells: Iterable[Interval | None]) -> Column:
    """Fractions in percent, not all tiny, unless `evaluate` shows them otherwise; two digits for a typical interval."""
    values = [value for method in study.methods for value in study.values(method, metric)]
    percent = all(0 <= value <= 1 for value in values) and max(values, default=1) >= 0.01 and shown_in_percent(metric)
    fewest, most, without_interval = (1, 2, 1) if percent else (0, 6, 3)
    scale = 100 if percent else 1
    widths = [scale * cell.half_width for cell in cells if cell is not None and cell.half_width > 0]
    if not widths:
        return Column(metric, percent, without_interval)
    # The narrowest interval keeps at least one digit, or it would read as ± 0.
    decimals = max(1 - floor(log10(median(widths))), -floor(log10(min(widths))))
    return Column(metric, percent, min(max(decimals, fewest), most))


def shown_in_percent(metric: str) -> bool:
    """Whether `evaluate` shows a metric in percent; true for one that this version does not know."""
    try:
        return METRICS[Metric.parse(metric.removesuffix(PLAIN)).family].percent
    except EquimetricError:
        return True


def _footnotes(rows: tuple[Row, ...], metrics: tuple[str, ...]) -> Iterable[str]:
    counts = {row.done for row in rows if row.done > 1}
    if counts:
        n = f"n = {counts.pop()} runs" if len(counts) == 1 else "n runs (n in the column “runs”)"
        yield f"Mean ± half width of the 95 % t-interval over {n} that differ in their seed only."
    if any(metric.endswith(PLAIN) for metric in metrics):
        yield "Columns “… plain” are of the same embeddings without the cohort."
    if any(row.kind == "baseline" for row in rows):
        yield "Baselines are not trained; a baseline with one run (n = 1) has no interval."
    if any(row.kind == "trained" and row.done == 1 for row in rows):
        yield "A method with one finished run (n = 1) has no interval: its spread over seeds is unknown."
    if any(cell is not None and cell.n != row.done for row in rows for cell in row.cells):
        yield "(n = …) in a cell: only n runs have a finite value of that metric."
    failures = [f"{row.label} ({row.failed} of {row.done + row.failed})" for row in rows if row.failed]
    if failures:
        yield f"Failed runs, not in the means: {', '.join(failures)}."
