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
    for name, one in space.items():
        if isinstance(one, Choice):
            continue
        share = position(one, float(params[name]))
        if share <= EDGE_SHARE or share >= 1 - EDGE_SHARE:
            end = f"lower end {one.low:g}" if share <= EDGE_SHARE else f"upper end {one.high:g}"
            notes[name] = f"{name} = {params[name]:.4g} lies at the {end} of its range; the best value may lie beyond"
    return notes


def position(space: SearchSpace, value: float) -> float:
    """Where a value lies in its range, from 0 to 1."""
    assert not isinstance(space, Choice)
    low, high = float(space.low), float(space.high)
    if isinstance(space, LogUniform):
        low, high, value = math.log(low), math.log(high), math.log(value)
    return (value - low) / (high - low)
