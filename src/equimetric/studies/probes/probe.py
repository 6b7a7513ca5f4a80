"""Declare and register probes: `@probe("conditions", …)` in a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from equimetric.registry import Registry

__all__ = ["PROBES", "Probe", "Progress", "probe"]

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the parts of a measurement that are done, and their number in all."""

Measure: TypeAlias = Callable[[Sequence[Path], Progress], dict[str, float]]


@dataclass(frozen=True)
class Probe:
    """A further measurement.

    Attributes:
        name: name in a study's configuration.
        title: title of its table.
        version: raised whenever the same runs give other values.
        measure: folders of runs, and what to call with its progress → values by name.
        sweep: the sweep whose runs are measured together; '' for a measurement of every run by itself.
    """

    name: str
    title: str
    version: int
    measure: Measure
    sweep: str = ""


PROBES: Registry[Probe] = Registry("probe", "equimetric.studies.probes")


def probe(name: str, *, title: str, version: int = 1, sweep: str = "") -> Callable[[Measure], Measure]:
    """Register a function from folders of runs to values; see `Probe` for the arguments."""

    def decorate(measure: Measure) -> Measure:
        PROBES.add(name, Probe(name, title, version, measure, sweep), module=measure.__module__)
        return measure

    return decorate
