"""A trial of a search: the training of a run without its test, folder, checkpoints and weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from equimetric.configuration import load_config
from equimetric.errors import EquimetricError
from equimetric.processes import SINGLE
from equimetric.runs.configuration import RunConfig
from equimetric.runs.folder import RunFolder
from equimetric.runs.image_size import fit_images
from equimetric.runs.regimes import fit_to_data
from equimetric.runs.run_cache import RunCache
from equimetric.threads import use_threads
from equimetric.training.loop import Progress, train_steps
from equimetric.training.session import open_session

__all__ = ["TrialResult", "train_trial"]

NULL_FOLDER = RunFolder(Path(os.devnull) / "run", writes=False)
"""A folder that never exists."""


class TrialResult(BaseModel):
    """Scores of a trial on the validation classes.

    Attributes:
        validation: the best scores, by `evaluation.selected_by`.
        best_step, steps: the step of these scores, and the steps taken.
        seconds: time of the steps and validations.
        history: the records of all validations, as in the log of a run.
        notes: notes for the user, such as a collapse.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    validation: dict[str, float]
    best_step: int
    steps: int
    seconds: float
    history: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()


def train_trial(
    config: RunConfig | Mapping[str, Any] | str | Path,
    *,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    cache: RunCache | None = None,
) -> TrialResult:
    """Train and validate as `train` does with the same configuration, to the same validation scores bit for bit.

    The test rows are no part of its data, and nothing is written: a killed trial is repeated from its start.
    """
    config, cache = fit_images(load_config(config, RunConfig, overrides)), cache or RunCache()
    if config.refit is not None:
        raise EquimetricError("a final model has no validation classes to try something on; leave refit out")
    with use_threads(config.training.threads):
        data = cache.data(config, test=False)
        session = open_session(fit_to_data(config, data.shape), NULL_FOLDER, data, SINGLE, cache)
        train_steps(session, progress)
    state = session.state
    return TrialResult(
        validation=state.best_scores,
        best_step=state.best_step,
        steps=state.step,
        seconds=state.seconds,
        history=tuple(state.history),
        notes=(state.collapse,) if state.collapse else (),
    )
