"""Metrics in tables: in the unit that `evaluate` shows them in, with the digits that their intervals need."""

from __future__ import annotations

from math import floor, isnan, log10

from equimetric.errors import EquimetricError
from equimetric.evaluation import METRICS, Metric
from equimetric.intervals import Interval
from equimetric.report.table_data import MISSING, TableCell, TableColumn, format_number
from equimetric.studies.records import PLAIN

__all__ = ["is_percentage", "metric_cell", "metric_column", "metric_ends", "metric_text", "value_cell"]

SHARES = ("disagreement",)
"""What else is a share of queries."""
PERCENT_DECIMALS = 2
MOST_DECIMALS = 6


def is_percentage(metric: str) -> bool:
    """Whether a metric is shown in percent; false for one that is not known."""
    if metric in SHARES:
        return True
    try:
        return METRICS[Metric.parse(metric.removesuffix(PLAIN)).family].percent
    except EquimetricError:
        return False


def metric_column(metric: str, name: str = "") -> TableColumn:
    """The column of a metric, or of another name in its unit."""
    return TableColumn(name or metric, "%" if is_percentage(metric) else "")


def metric_text(metric: str, value: float, half_width: float | None = None) -> str:
    """'52.31', '52.31 ± 1.20', '0.0123', in the unit of the metric, which stands elsewhere."""
    width = None if half_width is None or isnan(half_width) else half_width
    scale = 100.0 if is_percentage(metric) else 1.0
    decimals = PERCENT_DECIMALS if is_percentage(metric) else enough_decimals(value if width is None else width)
    text = format_number(scale * value, decimals)
    return text if width is None else f"{text} ± {format_number(scale * width, decimals)}"


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
    """As many as show three digits of a number, four at least."""
    return 4 if value == 0 or isnan(value) else min(MOST_DECIMALS, max(4, 2 - floor(log10(abs(value)))))
