"""Metrics in tables: in the unit that `evaluate` shows them in, with the digits that their intervals need."""

from __future__ import annotations

from math import floor, isfinite, isnan, log10

from equimetric.intervals import Interval
from equimetric.report.table_data import MISSING, TableCell, TableColumn, format_number
from equimetric.studies import table

__all__ = ["is_percentage", "metric_cell", "metric_column", "metric_ends", "metric_text", "value_cell"]

SHARES = ("disagreement",)
"""What else is a share of queries."""
PERCENT_DECIMALS = 2
MOST_DECIMALS = 6
DIGITS = 3
"""Of a number that is not shown in percent."""


def is_percentage(metric: str) -> bool:
    """Whether a metric is shown in percent; of names that are no metrics, `SHARES` are."""
    return metric in SHARES or table.is_percentage(metric, if_unknown=False)


def metric_column(metric: str, name: str = "") -> TableColumn:
    """The column of a metric, or of another name in its unit."""
    return TableColumn(name or metric, "%" if is_percentage(metric) else "")


def metric_text(metric: str, value: float, half_width: float | None = None) -> str:
    """'52.31', '52.31 ± 1.20', '0.0123', in the unit of the metric, which stands elsewhere."""
    width = None if half_width is None or isnan(half_width) else half_width
    scale = 100.0 if is_percentage(metric) else 1.0
    decimals = PERCENT_DECIMALS if is_percentage(metric) else enough_decimals(value if width is None else width)
    shown = [scale * one for one in (value, width) if one is not None]
    if decimals > MOST_DECIMALS + DIGITS - 1:
        # Not one digit would be left.
        return " ± ".join(f"{one:.2e}".replace("-", "−") for one in shown)
    return " ± ".join(format_number(one, min(decimals, MOST_DECIMALS)) for one in shown)


def metric_ends(metric: str, low: float, high: float) -> str:
    """'51.20 to 53.40': both ends of an interval."""
    return f"{metric_text(metric, low)} to {metric_text(metric, high)}"


def metric_cell(name: str, metric: str, interval: Interval | None) -> TableCell:
    """A mean with its interval in the unit of a metric; programs read it in the unit in which it is stored."""
    if interval is None:
        return TableCell(MISSING, {name: None})
    width = None if isnan(interval.half_width) else interval.half_width
    return TableCell(metric_text(metric, interval.mean, width), {name: interval.mean, f"{name} half width": width})


def value_cell(name: str, metric: str, value: float | None, half_width: float | None = None) -> TableCell:
    """A value in the unit of a metric, with its half width where there is one; a dash where there is none."""
    data = {name: value} if half_width is None else {name: value, f"{name}_half_width": half_width}
    return TableCell(MISSING if value is None else metric_text(metric, value, half_width), data)


def enough_decimals(value: float) -> int:
    """As many as show `DIGITS` digits of a number, four at least."""
    return 4 if value == 0 or not isfinite(value) else max(4, DIGITS - 1 - floor(log10(abs(value))))
