"""The comparison table as data: one row per method, one interval per metric, and the verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import floor, isnan, log10
from statistics import median
from typing import Literal

from equimetric.errors import EquimetricError
from equimetric.escaping import one_line
from equimetric.evaluation import METRICS, Metric
from equimetric.studies.judgement import Judgement, known_half_width, mean_interval
from equimetric.studies.records import PLAIN, Kind, RunRecord, StudyRecord
from equimetric.studies.statistics import Interval, RowComparison, TwoWayInterval, comparison_notes
from equimetric.studies.variance import variance_notes

__all__ = ["Column", "ComparisonTable", "Row", "comparison_table", "format_duration", "joined_table", "sweep_tables"]

_MISSING = "–"

Cell = TwoWayInterval | Interval


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
        return f"{value * self.scale:.{self.decimals}f}".replace("-", "−")

    def verdict_text(self, comparison: RowComparison) -> str:
        """'better +1.2': the verdict on the first row, and the difference."""
        verdict = "equal" if comparison.verdict == "practically equal" else comparison.verdict
        # Adding zero turns a rounded -0.0 into 0.0.
        difference = round(comparison.interval.mean * self.scale, self.decimals) + 0.0
        return f"{verdict} {difference:+.{self.decimals}f}".replace("-", "−")

    @property
    def scale(self) -> float:
        """Factor from stored to displayed values."""
        return 100.0 if self.percent else 1.0


@dataclass(frozen=True)
class Row:
    """One method: an interval per column (None where no run measured it), and its finished and failed runs.

    Attributes:
        seeds, folds: repetitions, and models of each.
        groups: letters by metric; rows that share one cannot be told apart.
        verdicts: on the row, by metric and by the row that it is compared with.
        emphasis: by metric, 'bold' for the trained row that is better than all others, 'tied' for those among which
            the best trained row is.
    """

    method: str
    kind: Kind
    cells: tuple[Cell | None, ...]
    done: int
    failed: int
    seconds: float | None
    parameters: int | None
    seeds: int = 1
    folds: int = 1
    groups: Mapping[str, str] = field(default_factory=dict)
    verdicts: Mapping[tuple[str, str], RowComparison] = field(default_factory=dict)
    emphasis: Mapping[str, Literal["bold", "tied"]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The method's name, with a flag where it is a baseline."""
        return f"{self.method} (baseline)" if self.kind == "baseline" else self.method

    @property
    def runs(self) -> str:
        """Number of runs behind the intervals, and of failed ones: '10 × 4' for ten repetitions of four folds."""
        if self.failed:
            return f"{self.done} of {self.done + self.failed}, {self.failed} failed"
        return f"{self.seeds} × {self.folds}" if self.folds > 1 else str(self.done)

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
    """Baselines, then trained methods, each by descending primary metric, which is the first column.

    Attributes:
        references: the rows that verdicts compare with; none without verdicts.
        judged: the metrics that verdicts are by.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[str, ...]
    references: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()

    @property
    def baseline(self) -> str | None:
        """The row that verdicts compare with first; None without verdicts."""
        return next(iter(self.references), None)

    @property
    def headings(self) -> tuple[str, ...]:
        """The heading line of the text formats."""
        return tuple(heading for headings, _ in self._parts(None) for heading in headings)

    def texts(self, row: Row) -> tuple[str, ...]:
        """The line of one method in the text formats, unescaped."""
        return tuple(text for _, texts in self._parts(row) for text in texts)

    def verdict_columns(self, column: Column) -> list[tuple[str, str]]:
        """Heading and reference of the verdicts that follow a metric."""
        if column.metric not in self.judged:
            return []
        prefix = "" if column is self.columns[0] else f"{column.metric} "
        return [(f"{prefix}vs {reference}", reference) for reference in self.references]

    def verdict_text(self, row: Row, column: Column, reference: str) -> str:
        """'better +1.2', 'worse −0.8', 'equal +0.1', 'undecided +0.4' in the unit of the column."""
        found = row.verdicts.get((column.metric, reference))
        return _MISSING if found is None else column.verdict_text(found)

    def _parts(self, row: Row | None) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Headings and texts of a row, side by side: method, runs, every metric with its verdicts, time, size."""
        yield ("method", "runs"), () if row is None else (row.label, row.runs)
        for place, column in enumerate(self.columns):
            columns = self.verdict_columns(column)
            headings = (column.heading, *(heading for heading, _ in columns))
            texts: tuple[str, ...] = ()
            if row is not None:
                verdicts = (self.verdict_text(row, column, reference) for _, reference in columns)
                texts = (self._cell_text(column, row.cells[place], row), *verdicts)
            if columns:
                headings += ("group" if place == 0 else f"{column.metric} group",)
                texts += () if row is None else (row.groups.get(column.metric) or _MISSING,)
            yield headings, texts
        yield ("time per run", "parameters"), () if row is None else (row.duration, row.size)

    def _cell_text(self, column: Column, cell: Cell | None, row: Row) -> str:
        if cell is None:
            return _MISSING
        text = column.number(cell.mean) + self.half_width(column, cell)
        fewer = self.fewer_seeds(row, cell)
        return f"{text} (n = {fewer})" if fewer else text

    @staticmethod
    def half_width(column: Column, cell: Cell) -> str:
        """' ± 0.4', or nothing where it is unknown."""
        width = known_half_width(cell)
        return "" if isnan(width) else f" ± {column.number(width)}"

    @staticmethod
    def fewer_seeds(row: Row, cell: Cell) -> int | None:
        """The seeds behind a cell, where it has fewer than its row."""
        seeds = count_seeds(cell)
        return None if seeds in (0, row.seeds) else seeds


def count_seeds(cell: Cell) -> int:
    """The seeds behind an interval; 0 for a row without any."""
    return cell.n if isinstance(cell, Interval) else min(cell.seeds, default=0)


def format_duration(seconds: float) -> str:
    """'9.8 s', '14 s', '2.5 min', '3.1 h'."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@lru_cache(maxsize=2)
def comparison_table(study: StudyRecord) -> ComparisonTable:
    """Mean and interval of every method and displayed metric of a study, with verdicts by the first metric."""
    table = make_table(study, study.title, {row: study.all_runs_of(row) for row in study.methods})
    return replace(table, footnotes=(*table.footnotes, *variance_notes(study)))


def joined_table(study: StudyRecord) -> ComparisonTable | None:
    """The table of joined fold models; None where there are none."""
    if not study.joined_runs:
        return None
    rows = {row: [run for run in study.joined_runs if run.method == row] for row in study.methods}
    title = f"{study.title}: fold models side by side (concatenated)"
    return make_table(study, title, {row: runs for row, runs in rows.items() if runs})


def sweep_tables(study: StudyRecord) -> dict[str, ComparisonTable]:
    """The table at every point of a sweep."""
    points = dict.fromkeys(run.point for run in study.sweep_runs)
    tables = {}
    for point in points:
        rows = {
            row: [run for run in study.sweep_runs if (run.method, run.point) == (row, point)] for row in study.methods
        }
        row_runs = {row: runs for row, runs in rows.items() if runs}
        tables[point] = make_table(study, f"{study.title}: {point}", row_runs)
    return tables


def make_table(study: StudyRecord, title: str, runs: Mapping[str, Sequence[RunRecord]]) -> ComparisonTable:
    """The table of rows with their runs."""
    reported = [
        metric for row_runs in runs.values() for run in row_runs if run.status == "done" for metric in run.metrics
    ]
    names = dict.fromkeys([study.primary_metric, *(study.table_metrics or reported)])
    metrics = [name for name in names if name in reported or name == study.primary_metric]
    rows = [_make_row(study, row, row_runs, metrics) for row, row_runs in runs.items()]
    judgement = Judgement(study, runs)
    rows = sorted((_add_verdicts(row, judgement) for row in rows), key=_sort_key)
    columns = tuple(
        _make_column(study, metric, [row.cells[column] for row in rows]) for column, metric in enumerate(metrics)
    )
    notes = tuple(_footnotes(study, rows, metrics, judgement))
    return ComparisonTable(title, columns, tuple(rows), notes, judgement.references, tuple(judgement.comparisons))


def _make_row(study: StudyRecord, method: str, runs: Sequence[RunRecord], metrics: Sequence[str]) -> Row:
    done = [run for run in runs if run.status == "done"]
    return Row(
        method=method,
        kind=study.kind_of(method),
        cells=tuple(mean_interval(study, method, metric, runs) for metric in metrics),
        done=len(done),
        failed=len(runs) - len(done),
        seconds=sum(run.seconds for run in done) / len(done) if done else None,
        parameters=max(run.parameters for run in done) if done else None,
        seeds=len({run.seed for run in done}),
        folds=max(1, len({run.fold for run in done})),
    )


def _add_verdicts(row: Row, judgement: Judgement) -> Row:
    """The row with its letters, its verdicts and its emphasis by every metric that is judged."""
    groups: dict[str, str] = {}
    verdicts: dict[tuple[str, str], RowComparison] = {}
    emphasis: dict[str, Literal["bold", "tied"]] = {}
    for metric, found in judgement.comparisons.items():
        if row.method not in found.rows:
            continue
        groups[metric] = found.letters[row.method]
        for reference in judgement.references:
            if reference in found.rows and reference != row.method:
                verdicts[metric, reference] = found.between(row.method, reference)
        methods = judgement.methods_by(metric)
        if methods is not None and row.method in methods.tied_with_best:
            emphasis[metric] = "bold" if len(methods.tied_with_best) == 1 else "tied"
    return replace(row, groups=groups, verdicts=verdicts, emphasis=emphasis)


def _sort_key(row: Row) -> tuple[bool, float, str]:
    primary = row.cells[0] if row.cells else None
    return row.kind != "baseline", float("inf") if primary is None else -primary.mean, row.method


def _make_column(study: StudyRecord, metric: str, cells: Iterable[Cell | None]) -> Column:
    """Fractions in percent, not all tiny, unless `evaluate` shows them otherwise; two digits for a typical interval."""
    present = [cell for cell in cells if cell is not None]
    values = [value for method in study.methods for value in study.values(method, metric)]
    values = values or [cell.mean for cell in present]
    percent = all(0 <= value <= 1 for value in values) and max(values, default=1) >= 0.01 and is_percentage(metric)
    min_decimals, max_decimals, without_interval = (1, 2, 1) if percent else (0, 6, 3)
    scale = 100 if percent else 1
    widths = [scale * width for cell in present if (width := known_half_width(cell)) > 0]
    if not widths:
        return Column(metric, percent, without_interval)
    # The narrowest interval keeps at least one digit, or it would read as ± 0.
    decimals = max(1 - floor(log10(median(widths))), -floor(log10(min(widths))))
    return Column(metric, percent, min(max(decimals, min_decimals), max_decimals))


def is_percentage(metric: str, *, if_unknown: bool = True) -> bool:
    """Whether `evaluate` shows a metric in percent; `if_unknown` for one that this version does not know."""
    try:
        return METRICS[Metric.parse(metric.removesuffix(PLAIN)).family].percent
    except EquimetricError:
        return if_unknown


def _footnotes(study: StudyRecord, rows: Sequence[Row], metrics: Sequence[str], judgement: Judgement) -> Iterable[str]:
    yield from _interval_notes(study, rows, metrics)
    if judgement.rows is not None:
        yield from comparison_notes(judgement.rows, by=tuple(judgement.comparisons))[1:]
        yield (
            f"{' and '.join(f'“vs {reference}”' for reference in judgement.references)}: the verdict on the difference "
            "in the metric before it, and the difference. Rows of one group (letters) cannot be told apart. The best "
            "trained row is bold where it is better than all other trained rows; where it is not, all that may be the "
            "best are marked."
        )
    if any(metric.endswith(PLAIN) for metric in metrics):
        yield "Columns “… plain” are of the same embeddings without the cohort."
    if any(cell is not None and ComparisonTable.fewer_seeds(row, cell) for row in rows for cell in row.cells):
        yield "(n = …) in a cell: only n runs have a finite value of that metric."
    failures = [_describe_failures(study, row) for row in rows if row.failed]
    if failures:
        yield f"Failed runs, not in the means: {', '.join(failures)}."
    if study.departures:
        changes = "; ".join(f"{key}: {change}" for key, change in study.departures.items())
        yield f"Departs from the protocol {study.protocol} in {changes}."
    if study.ledger is not None:
        yield from study.ledger.footnotes()


def _describe_failures(study: StudyRecord, row: Row) -> str:
    """'contrastive (1 of 3: the loss became NaN at step 340)'."""
    reasons = dict.fromkeys(one_line(run.error or "") for run in study.failed if run.method == row.method)
    counts = f"{row.failed} of {row.done + row.failed}"
    return f"{row.label} ({': '.join(filter(None, [counts, '; '.join(filter(None, reasons))]))})"


def _interval_notes(study: StudyRecord, rows: Sequence[Row], metrics: Sequence[str]) -> Iterable[str]:
    """Notes on what ± covers, by metric, and on rows without an interval."""
    confidence = f"{100 * study.statistics.confidence:g} %"
    by_class = [
        name
        for column, name in enumerate(metrics)
        if any(isinstance(row.cells[column], TwoWayInterval) for row in rows)
    ]
    repeated = [row for row in rows if row.seeds > 1]
    other_metrics = [name for name in metrics if name not in by_class]
    if by_class and repeated:
        target = "new seeds and new classes" if study.statistics.estimand == "seeds and classes" else "new seeds"
        example = repeated[-1]
        models = f", the mean of {example.folds} fold models each" if example.folds > 1 else ""
        yield (
            f"Mean ± half width of the {confidence} interval for {target}, over {example.seeds} repetitions that "
            f"differ in their seed only{models}, and over the test classes ({', '.join(by_class)})."
        )
        if other_metrics:
            yield f"± of {', '.join(other_metrics)} is for new seeds with these classes alone (t-interval)."
    elif repeated:
        counts = {row.seeds for row in repeated}
        n = f"n = {counts.pop()} runs" if len(counts) == 1 else "n runs (n in the column “runs”)"
        yield f"Mean ± half width of the {confidence} t-interval over {n} that differ in their seed only."
    if any(row.kind == "baseline" for row in rows):
        deterministic_text = "where nothing in them is random, ± is over classes alone"
        single = "a baseline with one run (n = 1) has no interval"
        yield f"Baselines are not trained; {deterministic_text if by_class else single}."
    if any(row.kind == "trained" and row.seeds == 1 for row in rows):
        yield "A method with one finished run (n = 1) has no interval: its spread over seeds is unknown."
