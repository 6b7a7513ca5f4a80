"""Members of ensembles by themselves, beside the whole; and what each method costs."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from equimetric.intervals import t_interval
from equimetric.report.memory_cells import MEMORY_NOTE, known_memory, memory_cells, memory_columns
from equimetric.report.metric_cells import metric_cell, metric_column
from equimetric.report.probe_tables import OVER_SEEDS
from equimetric.report.table_data import MISSING, PlainTable, TableCell, TableColumn, TableRow
from equimetric.studies.records import RunRecord, StudyRecord

__all__ = ["cost_table", "member_table"]

COSTS = {
    "dim": "dimensions",
    "parameters": "parameters",
    "training_only": "of them for training alone",
    "forward_passes": "forward passes",
}

DIVERSITY = ("disagreement", "unlikeness")


def member_table(study: StudyRecord) -> PlainTable | None:
    """Every member's accuracy beside the ensemble's, and how much the members differ; None without ensembles."""
    runs = {method: [run for run in study.runs_of(method, "done") if run.members] for method in study.methods}
    runs = {method: own_runs for method, own_runs in runs.items() if own_runs}
    if not runs:
        return None
    metrics = [
        name for name in dict.fromkeys([study.primary_metric, *study.table_metrics]) if name in first(runs)["metrics"]
    ]
    rows = []
    for method, of_method in runs.items():
        whole = [mean_of(name, [(run.seed, run.metrics.get(name)) for run in of_method]) for name in metrics]
        differ = [mean_of(name, [(run.seed, run.diversity.get(name)) for run in of_method]) for name in DIVERSITY]
        dim = of_method[0].cost.get("dim")
        judged = "class" if study.across is None else f"{study.across}, across modalities"
        rows.append(TableRow((text(method), text("all together"), text(dim), text(judged), *whole, *differ)))
        for place, member in enumerate(of_method[0].members):
            values_by_seed = [(run.seed, run.members[place]["metrics"]) for run in of_method]
            scores = [mean_of(name, [(seed, values.get(name)) for seed, values in values_by_seed]) for name in metrics]
            labels = member["labels"] or "class"
            own = (text(method), text(member["name"]), text(member["dim"]), text(labels))
            rows.append(TableRow((*own, *scores, text(None), text(None))))
    said = ("method", "member", "dimensions", "judged by")
    columns = (
        *(TableColumn(name, is_text=name != "dimensions") for name in said),
        *(metric_column(name) for name in (*metrics, *DIVERSITY)),
    )
    notes = (
        OVER_SEEDS,
        "Disagreement: share of queries whose nearest neighbour is right for exactly one of two members. Unlikeness: "
        "1 − linear CKA of their embeddings. Means over pairs of members.",
    )
    return PlainTable(f"{study.title}: members", columns, tuple(rows), notes)


def cost_table(study: StudyRecord) -> PlainTable | None:
    """Dimensions, parameters, forward passes, time and memory of every method; None where no method is an ensemble."""
    runs = {method: study.runs_of(method, "done") for method in study.methods}
    known = {method: own_runs for method, own_runs in runs.items() if own_runs and own_runs[0].cost}
    if not any(run.members for own_runs in known.values() for run in own_runs):
        return None
    kinds = known_memory(run for own_runs in known.values() for run in own_runs)
    rows = []
    for method, own_runs in known.items():
        figures = [text(own_runs[0].cost.get(name), name) for name in COSTS]
        seconds = sum(run.seconds for run in own_runs) / len(own_runs)
        time = TableCell(f"{seconds:.1f}", {"seconds": seconds})
        rows.append(TableRow((text(method, "method"), *figures, time, *memory_cells(own_runs, kinds))))
    columns = (
        TableColumn("method", is_text=True),
        *(TableColumn(heading) for heading in COSTS.values()),
        TableColumn("seconds per run"),
        *memory_columns(kinds),
    )
    note = "Forward passes of an image through a backbone, to be embedded. For training alone: what it leaves out."
    return PlainTable(f"{study.title}: cost", columns, tuple(rows), (note, *([MEMORY_NOTE] if kinds else ())))


def first(runs: dict[str, list[RunRecord]]) -> dict[str, dict[str, float]]:
    """A member, for the names of its metrics."""
    return dict(next(iter(runs.values()))[0].members[0])


def mean_of(name: str, found: Iterable[tuple[int, float | None]]) -> TableCell:
    """The mean over seeds of (seed, value), …, folds averaged first."""
    by_seed: dict[int, list[float]] = {}
    for seed, value in found:
        if value is not None and isfinite(value):
            by_seed.setdefault(seed, []).append(value)
    means = [sum(values) / len(values) for values in by_seed.values()]
    return metric_cell(name, name, t_interval(means) if means else None)


def text(value: object, name: str = "") -> TableCell:
    """A cell of plain text."""
    shown = MISSING if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    return TableCell(shown, {name: value} if name else {})
