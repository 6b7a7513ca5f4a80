"""The counterpart of each public name of two other libraries: the rows of their TOML files. Needs no torch.

`benchmarks/counterparts.py` and `benchmarks/migration.py` compute both sides of every example where that library is
installed; the tests compare with the numbers that they stored.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from equimetric.errors import EquimetricError, unknown_name

__all__ = ["COMPARED", "KINDS", "LIBRARIES", "METHOD_KINDS", "SITUATIONS", "VERDICTS", "Counterpart", "counterparts"]

METHOD_KINDS = ("losses", "miners", "distances", "reducers", "regularizers")
"""What is part of an objective here."""

KINDS = (
    *METHOD_KINDS,
    *(
        "logits",
        "samplers",
        "metrics",
        "options",
        "functional",
        "datasets",
        "transforms",
        "models",
        "trainers",
        "testers",
    ),
    *("retrieval", "inference", "lightning", "ddp", "utils", "registry"),
)
"""The modules that have the names; "metrics" are names of scores, "options" are those of whatever computes them."""

LIBRARIES = {
    "pytorch-metric-learning": "counterparts.toml",
    "open-metric-learning": "open_metric_learning.toml",
}
"""Library → the file of its rows."""

VERDICTS = {
    "agrees": "the same value and gradient",
    "except": "the same, except in the cases that the reason names",
    "drawn": "what is drawn at random has the same distribution",
    "differs": "there is a counterpart, but it is defined in another way",
    "none": "there is no counterpart",
}

COMPARED = {
    "": "nothing, as where theirs is drawn at random",
    "value": "the value",
    "embeddings": "the value and the gradient by the embeddings",
    "all": "the value and the gradients by embeddings and proxies",
}

SITUATIONS = {
    "even": "classes of the same size",
    "uneven": "classes of different sizes",
    "singletons": "some classes of a single sample",
    "one class": "a batch of a single class",
    "each once": "every class once",
    "lengths": "embeddings of very different lengths",
}
"""The batches on which every row is compared. None of them has embeddings of unit length."""


@dataclass(frozen=True)
class Counterpart:
    """One public name of another library, or several alike, and their counterpart here.

    Attributes:
        kind: the module that has the name, one of `KINDS`.
        theirs: the name, or several separated by commas.
        verdict: a key of `VERDICTS`.
        example: an expression with the name, of a loss or of a loss and a miner, in terms of the library's modules,
            `classes` and `dim`.
        ours: the method that corresponds to the example; for samplers the batches, for metrics the metric, for all
            other kinds code.
        options: its options.
        variables: further options, whose values are variables of the same names: `classes`, `dim`, `superclass`.
        reason: what differs and why, or what to use instead.
        compared: what of both sides of the example must agree, one of `COMPARED`.
        unlike: the `SITUATIONS` in which it does not agree.

    """

    kind: str
    theirs: str
    verdict: str
    example: str = ""
    ours: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    variables: Sequence[str] = ()
    reason: str = ""
    compared: str = ""
    unlike: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Raise an error for an incomplete row."""
        is_valid = self.kind in KINDS and self.verdict in VERDICTS and self.compared in COMPARED
        is_explained = bool(self.reason) or self.verdict == "agrees"
        is_complete = bool(self.ours) != (self.verdict == "none") and (bool(self.example) or not self.compared)
        is_exact = set(self.unlike) <= (set(SITUATIONS) if self.compared and self.verdict != "agrees" else set())
        if not (is_valid and is_explained and is_complete and is_exact):
            raise EquimetricError(f"the row of {self.theirs!r} in counterparts.toml is not complete")

    @property
    def names(self) -> list[str]:
        """The names of the other library that the row stands for."""
        return self.theirs.split(", ")

    @property
    def construction(self) -> str:
        """The counterpart as code that runs where `em` and the variables exist; empty where there is none."""
        if not self.ours:
            return ""
        if self.kind == "samplers":
            return f"em.batches.{self.ours}({', '.join(['labels', *self.arguments()])})"
        if self.kind == "metrics":
            return f"em.evaluate(embeddings, labels, metrics=[{self.ours!r}])"
        if self.kind not in METHOD_KINDS:
            return self.ours
        return f"em.objective({', '.join([repr(self.ours), *self.arguments()])})"

    def arguments(self) -> list[str]:
        """Options as keyword arguments, those with a dot in their name in a dictionary."""
        flat = [f"{name}={value!r}" for name, value in self.options.items() if "." not in name]
        qualified = {name: value for name, value in self.options.items() if "." in name}
        taken = [f"{name}={name}" for name in self.variables]
        return [*taken, *flat, *([f"**{qualified!r}"] if qualified else [])]


@cache
def counterparts(library: str = "pytorch-metric-learning") -> tuple[Counterpart, ...]:
    """Every row of a library, in the order of its file: by kind, then by name."""
    if library not in LIBRARIES:
        raise unknown_name("library", library, LIBRARIES)
    text = Path(__file__).with_name(LIBRARIES[library]).read_text(encoding="utf-8")
    return tuple(Counterpart(kind, **row) for kind, rows in tomllib.loads(text).items() for row in rows)
