"""What an addition changes: arms beside their methods, and a cohort beside none, relative to the value without it."""

from __future__ import annotations

from math import isnan

from equimetric.intervals import Interval, t_interval
from equimetric.report.table_data import PlainTable, TableCell, TableColumn, TableRow, format_number
from equimetric.studies.records import PLAIN, StudyRecord

__all__ = ["change_table"]


def change_table(study: StudyRecord) -> PlainTable | None:
    """(with − without) / without of every shown metric; None where the study adds nothing to its methods."""
    metrics = [name for name in study.table_metrics if not name.endswith(PLAIN)]
    rows = [
        (f"{row}, {row.removeprefix(base)[1:]} added", change_cells(study, (base, ""), (row, ""), metrics))
        for row in study.methods
        for base in study.methods
        if row.startswith(f"{base}+")
    ]
    with_cohort = any(name.endswith(PLAIN) for name in study.table_metrics)
    rows += [
        (f"{row}, cohort", change_cells(study, (row, PLAIN), (row, ""), metrics))
        for row in study.methods
        if with_cohort
    ]
    if not rows:
        return None
    columns = (TableColumn("added", is_text=True), *(TableColumn(metric, "%") for metric in metrics))
    lines = tuple(TableRow((TableCell(name, {"added": name}), *cells)) for name, cells in rows)
    note = (
        "Change relative to the value without the addition, mean ± half width of the 95 % t-interval over seeds; of "
        "OPIS and its forms, negative is better."
    )
    return PlainTable(f"{study.title}: what additions change", columns, lines, (note,))


def change_cells(
    study: StudyRecord, without: tuple[str, str], given: tuple[str, str], metrics: list[str]
) -> list[TableCell]:
    """The relative changes of all metrics between two rows, or two forms of a row, over their common seeds."""
    cells = []
    for metric in metrics:
        before = study.values_by_seed(without[0], metric + without[1])
        after = study.values_by_seed(given[0], metric + given[1])
        changes = [(after[seed] - before[seed]) / before[seed] for seed in after if before.get(seed)]
        cells.append(change_cell(metric, t_interval(changes) if changes else None))
    return cells


def change_cell(metric: str, change: Interval | None) -> TableCell:
    """A relative change in percent with its interval."""
    if change is None:
        return TableCell("–", {f"{metric}_change": None})
    width = change.half_width
    text = format_number(100 * change.mean, 1, signed=True) + ("" if isnan(width) else f" ± {100 * width:.1f}")
    return TableCell(text, {f"{metric}_change": change.mean, f"{metric}_half_width": None if isnan(width) else width})
