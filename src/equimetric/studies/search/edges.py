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
        if isinstance(param_range, Choice):
            continue
        fraction = position(param_range, float(params[name]))
        if fraction <= EDGE_SHARE or fraction >= 1 - EDGE_SHARE:
            end = f"lower end {param_range.low:g}" if fraction <= EDGE_SHARE else f"upper end {param_range.high:g}"
            notes[name] = f"{name} = {params[name]:.4g} lies at the {end} of its range; the best value may lie beyond"
    return notes


def position(space: SearchSpace, value: float) -> float:
    """Position of a value in its range, from 0 to 1."""
    assert not isinstance(space, Choice)
    low, high = float(space.low), float(space.high)
    if isinstance(space, LogUniform):
        low, high, value = math.log(low), math.log(high), math.log(value)
    return (value - low) / (high - low)
