"""Forgetting and backward transfer of a worked table."""

import math

import pytest

from equimetric.errors import EquimetricError
from equimetric.evaluation.forgetting import measure_forgetting

AFTER = [
    [0.80, math.nan, math.nan],
    [0.85, 0.70, math.nan],
    [0.60, 0.75, 0.90],
]


def test_a_worked_table():
    found = measure_forgetting(AFTER)
    assert found.mean_so_far.tolist() == pytest.approx([0.80, 0.775, 0.75])
    # The first classes were best after the second round; the second ones have gained since.
    assert found.forgotten.tolist() == pytest.approx([0.85 - 0.60, 0.70 - 0.75])
    assert found.forgetting == pytest.approx((0.25 - 0.05) / 2)
    assert found.backward_transfer == pytest.approx(((0.60 - 0.80) + (0.75 - 0.70)) / 2)


def test_rounds_to_come_do_not_count():
    filled = [[0.80, 0.1, 0.2], [0.85, 0.70, 0.3], [0.60, 0.75, 0.90]]
    assert measure_forgetting(filled).forgetting == measure_forgetting(AFTER).forgetting


def test_a_model_that_does_not_change_forgets_nothing():
    found = measure_forgetting([[0.5, 0.6], [0.5, 0.6]])
    assert found.forgetting == found.backward_transfer == 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[0.5]], "a square table of two rounds at least"),
        ([[0.5, 0.4]], "a square table"),
        ([[0.5, math.nan], [math.nan, 0.5]], "need a finite value"),
    ],
)
def test_impossible_tables(table, message):
    with pytest.raises(EquimetricError, match=message):
        measure_forgetting(table)
