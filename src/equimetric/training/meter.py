"""Means of the loss terms between two lines of the log; raises an error if one, or a gradient, is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.runs.configuration import RunConfig

__all__ = ["LossMeter"]

MAX_UNREAD_LOSSES = 50
"""Steps whose values are read at once."""

Rows: TypeAlias = list[tuple[int, dict[str, float]]]
"""Steps, and the values of each by name."""


class LossMeter:
    """Collects loss terms and gradient norms and reads them later: a reading costs a call and a GPU synchronisation.

    They are read before a line of the log, a validation or a checkpoint, in the first step, and where many are unread.
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.unread: list[tuple[int, Mapping[str, Tensor]]] = []
        self.unread_norms: list[tuple[int, Mapping[str, Sequence[Tensor]]]] = []
        self.latest: dict[str, float] = {}
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def add(self, terms: Mapping[str, Tensor], step: int) -> None:
        """Add the terms of a batch."""
        self.unread.append((step, terms))

    def add_gradients(self, norms: Mapping[str, Sequence[Tensor]], step: int) -> None:
        """Add the gradient norms of a step: of every parameter, by parameter group."""
        self.unread_norms.append((step, norms))
        if not self.latest or len(self.unread_norms) >= MAX_UNREAD_LOSSES:
            self.read()

    def read(self) -> None:
        """Read the values; raises an error instead of training on with NaN."""
        unread, unread_norms, self.unread, self.unread_norms = self.unread, self.unread_norms, [], []
        flat = [value for _, terms in unread for value in terms.values()]
        flat += [norm for _, norms in unread_norms for group in norms.values() for norm in group]
        values = iter(torch.stack(flat).tolist() if flat else ())
        losses = [(step, {name: next(values) for name in terms}) for step, terms in unread]
        norms = [
            (step, {name: math.hypot(*(next(values) for _ in group)) for name, group in by_group.items()})
            for step, by_group in unread_norms
        ]
        for _, row in losses:
            self.latest = row
            for name, value in row.items():
                self.sums[name] = self.sums.get(name, 0.0) + value
                self.counts[name] = self.counts.get(name, 0) + 1
        self.require_finite(losses, norms)

    @contextmanager
    def explain_errors(self) -> Iterator[None]:
        """If a step fails, first raise the error for a value of an earlier step that was not finite."""
        try:
            yield
        except Exception:
            self.read()
            raise

    def require_finite(self, losses: Rows, norms: Rows) -> None:
        """Raise an error that names the first step at which a term or else a gradient is not finite."""
        bad = [
            (step, kind, entry) for kind, rows in enumerate((losses, norms)) for step, entry in find_non_finite(rows)
        ]
        if not bad:
            return
        step, kind, (name, value) = min(bad, key=lambda item: item[:2])
        optimizer = self.config.optimizer
        subject = f"the term {name!r} of {self.config.method!r}"
        if kind:
            subject = f"the loss of {self.config.method!r} is finite, but the gradient of its parameter group {name!r}"
        raise EquimetricError(
            f"{subject} became {value} at step {step + 1}; "
            f"lower optimizer.lr (now {optimizer.lr:g}) or optimizer.objective_lr (now {optimizer.objective_lr:g}), "
            "or soften the method's scale or temperature"
        )

    def record(self, step: int, seconds: float) -> dict[str, Any]:
        """The log line for the steps since the last one."""
        means = {name: value / self.counts[name] for name, value in self.sums.items()}
        self.sums, self.counts = {}, {}
        loss = means.pop("loss")
        return {"kind": "train", "step": step, "loss": loss, "terms": means, "seconds": round(seconds, 2)}


def find_non_finite(rows: Rows) -> Iterator[tuple[int, tuple[str, float]]]:
    """The step and the first name of every row with a value that is not finite; the sum 'loss' comes last."""
    for step, row in rows:
        bad_values = [(name, value) for name, value in row.items() if not math.isfinite(value)]
        if bad_values:
            yield step, min(bad_values, key=lambda item: item[0] == "loss")
