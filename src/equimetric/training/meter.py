"""Means of the loss terms between two lines of the log; raises an error if one is not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.runs.configuration import RunConfig

__all__ = ["LossMeter"]


class LossMeter:
    """Collects loss terms without reading them at once: reading makes a GPU wait."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.unread: list[tuple[int, dict[str, Tensor]]] = []
        self.latest: dict[str, float] = {}
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def add(self, terms: Mapping[str, Tensor], step: int) -> None:
        """Add the terms of a batch."""
        if not self.latest:
            self.latest = dict.fromkeys(terms, math.nan)
        self.unread.append((step, dict(terms)))

    def read(self) -> None:
        """Read the values; raises an error instead of training on with NaN."""
        if not self.unread:
            return
        flat = torch.stack([value for _, terms in self.unread for value in terms.values()]).tolist()
        values = iter(flat)
        for step, terms in self.unread:
            row = {name: next(values) for name in terms}
            self.latest = row
            for name, value in row.items():
                self.sums[name] = self.sums.get(name, 0.0) + value
                self.counts[name] = self.counts.get(name, 0) + 1
            if not math.isfinite(sum(row.values())):
                self.stop(step)
        self.unread = []

    def stop(self, step: int) -> None:
        """Name the term that is not finite."""
        terms = {**{name: value for name, value in self.latest.items() if name != "loss"}, **self.latest}
        name, value = next((name, value) for name, value in terms.items() if not math.isfinite(value))
        optimizer = self.config.optimizer
        raise EquimetricError(
            f"the term {name!r} of {self.config.method!r} became {value} at step {step + 1}; "
            f"lower optimizer.lr (now {optimizer.lr:g}) or optimizer.objective_lr (now {optimizer.objective_lr:g}), "
            "or soften the method's scale or temperature"
        )

    def record(self, step: int, seconds: float) -> dict[str, Any]:
        """The log line for the steps since the last one."""
        means = {name: value / self.counts[name] for name, value in self.sums.items()}
        self.sums, self.counts = {}, {}
        loss = means.pop("loss")
        return {"kind": "train", "step": step, "loss": loss, "terms": means, "seconds": round(seconds, 2)}
