"""Further measurements: what probes found, and the area under a metric over growing shift."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from equimetric.evaluation.shift_curve import shift_curve
from equimetric.intervals import Interval, t_interval
from equimetric.report.metric_cells import metric_cell, metric_column
from equimetric.report.table_data import PlainTable, TableCell, TableColumn, TableRow
from equimetric.studies.probes.probe import PROBES
from equimetric.studies.records import RunRecord, StudyRecord

__all__ = ["probe_tables", "shift_table"]

OVER_SEEDS = "Mean ± half width of the 95 % t-interval over seeds, with these classes."


def probe_tables(study: StudyRecord) -> dict[str, PlainTable]:
    """One table for each probe: its values down, methods across."""
    names = dict.fromkeys(run.point for run in study.probe_runs)
    return {name: probe_table(study, name) for name in names}


def probe_table(study: StudyRecord, name: str) -> PlainTable:
    """What one probe found."""
    runs = [run for run in study.probe_runs if run.point == name and run.status == "done"]
    methods = [method for method in study.methods if any(run.method == method for run in runs)]
    values = list(dict.fromkeys(value for run in runs for value in run.metrics))
    rows = []
    for value in values:
        cells = [metric_cell(method, value, seed_means(runs, method, value)) for method in methods]
        rows.append(TableRow((TableCell(metric_column(value).heading, {"measured": value}), *cells)))
    columns = (TableColumn("measured", is_text=True), *(TableColumn(method) for method in methods))
    title = PROBES[name].title if name in PROBES else name
    return PlainTable(f"{study.title}: {title}", columns, tuple(rows), (OVER_SEEDS,))


def shift_table(study: StudyRecord) -> PlainTable | None:
    """The primary metric of every method on each split, by growing distance, and the area under it; None without."""
    points = [point for point in study.shifts if any(run.point == point for run in study.sweep_runs)]
    if len(points) < 2:
        return None
    ordered = sorted(points, key=lambda point: study.shifts[point])
    rows = []
    for method in study.methods:
        values = [seed_values(study.sweep_runs, method, study.primary_metric, point) for point in ordered]
        seeds = set.intersection(*(set(by_seed) for by_seed in values))
        if not seeds:
            continue
        table = np.array([[by_seed[seed] for by_seed in values] for seed in sorted(seeds)])
        curve = shift_curve([study.shifts[point] for point in ordered], table)
        metric = study.primary_metric
        cells = [metric_cell(point, metric, one) for point, one in zip(ordered, curve.points, strict=True)]
        rows.append(TableRow((TableCell(method, {"method": method}), *cells, metric_cell("area", metric, curve.area))))
    headings = [f"{point} (distance {study.shifts[point]:.3g})" for point in ordered]
    in_unit = [metric_column(study.primary_metric, name) for name in (*headings, "area")]
    columns = (TableColumn("method", is_text=True), *in_unit)
    notes = (
        OVER_SEEDS,
        f"Area under {study.primary_metric} over the Fréchet distance of the splits, scaled to [0, 1].",
    )
    return PlainTable(f"{study.title}: growing shift of the test classes", columns, tuple(rows), notes)


def seed_values(runs: Sequence[RunRecord], method: str, metric: str, point: str) -> dict[int, float]:
    """Seed → mean over folds, of the runs at a point."""
    by_seed: dict[int, list[float]] = {}
    for run in runs:
        if run.method == method and run.point == point and isfinite(run.metrics.get(metric, float("nan"))):
            by_seed.setdefault(run.seed, []).append(run.metrics[metric])
    return {seed: sum(folds) / len(folds) for seed, folds in by_seed.items()}


def seed_means(runs: Sequence[RunRecord], method: str, value: str) -> Interval | None:
    """The mean over seeds of a value of a probe; None where no run has it."""
    values = seed_values(runs, method, value, runs[0].point)
    return t_interval(list(values.values())) if values else None
