"""What stands here for each public name of pytorch-metric-learning: the rows of `counterparts.toml`. Needs no torch.

`benchmarks/counterparts.py` computes both sides of every example where that library is installed; the tests compare
with the numbers that it stored.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from equimetric.errors import EquimetricError

__all__ = ["COMPARED", "KINDS", "VERDICTS", "Counterpart", "counterparts"]

KINDS = ("losses", "miners", "samplers", "distances", "reducers", "regularizers")
"""Modules of the other library."""

VERDICTS = {
    "agrees": "the same value and gradient, or for what is drawn at random the same distribution",
    "differs": "there is a counterpart, but it is defined in another way",
    "none": "there is no counterpart",
}

COMPARED = {
    "": "nothing, as where theirs is drawn at random",
    "value": "the value",
    "embeddings": "the value and the gradient by the embeddings",
    "all": "the value and the gradients by embeddings and proxies",
}


@dataclass(frozen=True)
class Counterpart:
    """One public name of pytorch-metric-learning and what stands here for it.

    Attributes:
        kind: the module that has the name, one of `KINDS`.
        theirs: the name.
        verdict: a key of `VERDICTS`.
        example: an expression with the name, of a loss or of a loss and a miner, in terms of the library's modules,
            `classes` and `dim`.
        ours: the method that stands for the example; for samplers the kind of batches.
        options: its options; for samplers those of the configuration's [batch] table.
        reason: what differs and why, or what to use instead.
        compared: what of both sides of the example must agree, one of `COMPARED`.

    """

    kind: str
    theirs: str
    verdict: str
    example: str = ""
    ours: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    compared: str = ""

    def __post_init__(self) -> None:
        """Refuse a row that says nothing."""
        known = self.kind in KINDS and self.verdict in VERDICTS and self.compared in COMPARED
        explained = bool(self.reason) or self.verdict == "agrees"
        complete = bool(self.ours) != (self.verdict == "none") and (bool(self.example) or not self.compared)
        if not (known and explained and complete):
            raise EquimetricError(f"the row of {self.theirs!r} in counterparts.toml is not complete")

    @property
    def construction(self) -> str:
        """Ours as code, or as entries of a configuration's [batch] table; empty where there is none."""
        if self.kind == "samplers" and self.ours:
            return ", ".join(f"{name} = {value!r}" for name, value in {"kind": self.ours, **self.options}.items())
        if not self.ours:
            return ""
        flat = {name: value for name, value in self.options.items() if "." not in name}
        qualified = {name: value for name, value in self.options.items() if "." in name}
        given = [repr(self.ours), *(f"{name}={value!r}" for name, value in flat.items())]
        return f"em.objective({', '.join([*given, *([f'**{qualified!r}'] if qualified else [])])})"


@cache
def counterparts() -> tuple[Counterpart, ...]:
    """Every row, in the order of the file: by kind, then by name."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return tuple(Counterpart(kind, **row) for kind, rows in tomllib.loads(text).items() for row in rows)
