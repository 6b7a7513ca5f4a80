"""Optima at the end of their range: the best value may lie beyond it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from equimetric.search_space import Choice, LogUniform, SearchSpace

__all__ = ["edge_notes"]

EDGE_SHARE = 0.02
"""Share of a range, or of its orders of magnitude, that counts as its end."""


def edge_notes(space: Mapping[str, SearchSpace], params: Mapping[str, Any]) -> dict[str, str]:
    """Parameter → a sentence, where the chosen value lies at the end of its range."""
    notes = {}
    for name, param_range in space.items():
        edge = describe_edge(param_range, params[name])
        if edge:
            notes[name] = f"{name} = {params[name]:.4g} lies {edge} of its range; the best value may lie beyond"
    return notes


def describe_edge(space: SearchSpace, value: Any) -> str:
    """'at the lower end 1e-05', 'close to the upper end 2'; '' for a value inside the range."""
    if isinstance(space, Choice):
        return ""
    share = position(space, float(value))
    if EDGE_SHARE < share < 1 - EDGE_SHARE:
        return ""
    name, end = ("lower", space.low) if share <= EDGE_SHARE else ("upper", space.high)
    where = "at" if math.isclose(float(value), float(end), rel_tol=1e-9, abs_tol=1e-12) else "close to"
    return f"{where} the {name} end {end:g}"


def position(space: SearchSpace, value: float) -> float:
    """Position of a value in its range, from 0 to 1."""
    assert not isinstance(space, Choice)
    low, high = float(space.low), float(space.high)
    if isinstance(space, LogUniform):
        low, high, value = math.log(low), math.log(high), math.log(value)
    return (value - low) / (high - low)
