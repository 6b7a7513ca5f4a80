"""Metrics in tables: units, digits, signs."""

from math import inf, nan

import pytest

from equimetric.report.metric_cells import is_percentage, metric_text
from equimetric.report.table_data import format_number


@pytest.mark.parametrize(
    ("metric", "value", "half_width", "text"),
    [
        ("map@r", 0.5231, 0.012, "52.31 ± 1.20"),
        ("map@r", -1e-6, None, "0.00"),
        ("opis", 0.00123, 0.00004, "0.001230 ± 0.000040"),
        ("opis", 3e-7, 2e-8, "3.00e−07 ± 2.00e−08"),
        ("opis", 3e-12, 2e-13, "3.00e−12 ± 2.00e−13"),
        ("opis", 3e-12, None, "3.00e−12"),
        ("opis", inf, None, "inf"),
        ("opis", 0.5, nan, "0.5000"),
    ],
)
def test_metrics_have_the_digits_that_they_need(metric, value, half_width, text):
    assert metric_text(metric, value, half_width) == text


def test_shares_and_percentages():
    shown = {name: is_percentage(name) for name in ("map@r", "recall@1 plain", "opis", "disagreement", "unlikeness")}
    assert shown == {"map@r": True, "recall@1 plain": True, "opis": False, "disagreement": True, "unlikeness": False}


def test_minus_signs():
    assert [format_number(value, 1) for value in (-1.26, -0.04, 0.04)] == ["−1.3", "0.0", "0.0"]
    assert [format_number(value, 1, signed=True) for value in (-1.26, -0.04, 2)] == ["−1.3", "+0.0", "+2.0"]
