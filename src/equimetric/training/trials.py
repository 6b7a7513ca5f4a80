"""Trials of a search: trained and validated like every run, without a folder, weights or a look at the test classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equimetric.processes import init_processes
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import load_run_data
from equimetric.runs.folder import RunFolder
from equimetric.threads import use_threads
from equimetric.training.loop import Progress, train_steps
from equimetric.training.session import open_session

__all__ = ["TrialResult", "train_trial"]

NOWHERE = Path("no-folder")
"""The folder of a run that writes nothing."""


@dataclass(frozen=True)
class TrialResult:
    """What a trial found.

    Attributes:
        validation: the best scores on the validation classes.
        best_step, steps: the step of these scores, and the steps taken.
        seconds: training time.
        history: the records of all validations.
    """

    validation: Mapping[str, float]
    best_step: int
    steps: int
    seconds: float
    history: tuple[Mapping[str, Any], ...]


def train_trial(config: RunConfig, *, progress: Progress | None = None) -> TrialResult:
    """Train as `train` does, with the same validation scores, and return those alone."""
    with use_threads(config.training.threads), init_processes(config.training.device) as processes:
        data = load_run_data(config.data, config.refit, model=config.model)
        session = open_session(config, RunFolder(NOWHERE, writes=False), data, processes)
        train_steps(session, progress)
    state = session.state
    return TrialResult(state.best_scores, state.best_step, state.step, state.seconds, tuple(state.history))
