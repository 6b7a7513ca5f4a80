"""Runs of successive rounds: each evaluated on the test classes and on the classes of every round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.evaluation.forgetting import Forgetting, measure_forgetting
from equimetric.runs.evaluation import OpenRun, evaluate_part, open_run

__all__ = ["RoundsTable", "evaluate_rounds"]


@dataclass(frozen=True, eq=False)
class RoundsTable:
    """One metric over R rounds.

    metric      name of the metric
    test        its value on the test classes, which are the same in every round, after each round
    classes     its values on the classes of every round after every round, with the forgetting
    """

    metric: str
    test: tuple[float, ...]
    classes: Forgetting

    def __str__(self) -> str:
        rounds = len(self.test)
        header = ["after", "test classes", *(f"round {r}" for r in range(1, rounds + 1)), "seen so far"]
        lines = [header]
        for r, test in enumerate(self.test, start=1):
            row = self.classes.values[r - 1]
            cells = ["" if math.isnan(value) else f"{value:.4f}" for value in row]
            lines.append([f"round {r}", f"{test:.4f}", *cells, f"{self.classes.mean_so_far[r - 1]:.4f}"])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.rjust, line, widths)) for line in lines]
        end = f"forgetting {self.classes.forgetting:.4f}, backward transfer {self.classes.backward_transfer:+.4f}"
        return "\n".join([f"{self.metric} after every round", *table, end])


def evaluate_rounds(folders: Sequence[str | Path], metric: str | None = None) -> RoundsTable:
    """Evaluate the runs of rounds 1 … R on the test classes and on the classes of all rounds so far.

    `metric` is one of those that the runs report, by default the one that selects their weights.
    """
    if len(folders) < 2:
        raise EquimetricError("forgetting needs the runs of two rounds at least, in their order")
    after = np.full((len(folders), len(folders)), np.nan)
    test: list[float] = []
    for r, folder in enumerate(folders, start=1):
        run = open_run(folder)
        require_round(run, r)
        metric = metric or run.config.evaluation.selected_by
        test.append(value_of(run, "test", metric))
        for earlier in range(1, r + 1):
            after[r - 1, earlier - 1] = value_of(run, f"round{earlier}", metric)
    assert metric is not None
    return RoundsTable(metric, tuple(test), measure_forgetting(after))


def value_of(run: OpenRun, part: str, metric: str) -> float:
    """A metric of a part of the classes of a run."""
    evaluation = run.config.evaluation
    if metric not in evaluation.names():
        names = ", ".join(evaluation.names())
        raise EquimetricError(f"{str(run.model.folder)!r} does not report {metric!r}; it has {names}")
    return evaluate_part(run.embed(part), evaluation)[metric]


def require_round(run: OpenRun, number: int) -> None:
    """Raise an error where a run is not of the round of this number."""
    rounds = run.config.data.rounds
    if rounds is None or rounds.number != number:
        description = "not of a round" if rounds is None else f"of round {rounds.number}"
        raise EquimetricError(
            f"{str(run.model.folder)!r} is {description}; give the runs of round 1, 2, … in their order"
        )
