"""Calibration range and certificate of every method as a table for papers."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from equimetric.evaluation.threshold_profile import ThresholdProfile
from equimetric.report.table_data import (
    MISSING,
    PlainTable,
    TableCell,
    TableColumn,
    TableRow,
    format_number,
    format_share,
    text_cell,
)
from equimetric.runs.profile import CertifiedPoint, RunProfile

__all__ = ["threshold_table"]

COLUMNS = (
    TableColumn("method", is_text=True),
    TableColumn("calibration range"),
    TableColumn("OPIS", "×10⁻³"),
    TableColumn("10 %-OPIS", "×10⁻³"),
    TableColumn("certified threshold"),
    TableColumn("FAR", "%"),
    TableColumn("FRR", "%"),
)
BOUND = TableColumn("FAR, new classes", "%")
NOTE = (
    "The calibration range lies between the thresholds of false accept rates (FAR) of 1 % and 10 %. OPIS is the "
    "variance between classes of the utility there, the harmonic mean of 1 − FAR and 1 − FRR of a class."
)
CERTIFIED_NOTE = "The certified threshold is that of `equimetric calibrate` on these classes."
BOUND_NOTE = "The bound for new classes has 95 % confidence."
WORST_SHARE = 0.1


def threshold_table(title: str, runs: Mapping[str, RunProfile]) -> PlainTable | None:
    """One row for each run with thresholds, and for the same without its cohort; None where none has any.

    The bound for new classes is left out where no certificate has one.
    """
    rows = [(name, run.thresholds, run.certified) for name, run in runs.items() if run.thresholds is not None]
    rows += [(f"{name}, without its cohort", run.plain, None) for name, run in runs.items() if run.plain is not None]
    if not rows:
        return None
    order = list(runs)
    rows.sort(key=lambda row: order.index(row[0].removesuffix(", without its cohort")))
    bounded = any(point is not None and isfinite(point.far_bound) for _, _, point in rows)
    lines = [TableRow((text_cell("method", name), *profile_cells(one), *point_cells(one, point, bounded)))
             for name, one, point in rows]  # fmt: skip
    certified = any(point is not None for _, _, point in rows)
    notes = (NOTE, *([CERTIFIED_NOTE] if certified else []), *([BOUND_NOTE] if bounded else []))
    return PlainTable(f"{title}: thresholds", (*COLUMNS, *([BOUND] if bounded else [])), tuple(lines), notes)


def profile_cells(profile: ThresholdProfile) -> list[TableCell]:
    """Calibration range, OPIS, and that of the worst tenth of the classes."""
    first, last = profile.calibration
    sign = -1 if profile.scored else 1
    low, high = sorted(sign * float(profile.thresholds[place]) for place in (first, last - 1))
    consistency = profile.consistency
    opis, worst = consistency.opis, consistency.epsilon_opis(WORST_SHARE)
    return [
        TableCell(f"{format_number(low, 3)} … {format_number(high, 3)}", {"range_low": low, "range_high": high}),
        TableCell(format_number(1e3 * opis, 2), {"opis": opis}),
        TableCell(format_number(1e3 * worst, 1), {"opis_worst_tenth": worst}),
    ]


def point_cells(profile: ThresholdProfile, point: CertifiedPoint | None, bounded: bool) -> list[TableCell]:
    """The certified threshold with its error rates."""
    names = ("certified_threshold", "far", "frr", *(["far_new_classes"] if bounded else []))
    if point is None:
        return [TableCell(MISSING, {name: None}) for name in names]
    threshold = -point.threshold if profile.scored else point.threshold
    texts = (format_number(threshold, 4), format_share(point.far), format_share(point.frr))
    cells = [
        TableCell(text, {name: value})
        for text, name, value in zip(texts, names, (threshold, point.far, point.frr), strict=False)
    ]
    if bounded:
        known = isfinite(point.far_bound)
        bound = format_share(point.far_bound) if known else MISSING
        cells.append(TableCell(bound, {"far_new_classes": point.far_bound if known else None}))
    return cells
