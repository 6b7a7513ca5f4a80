"""A final model: a finished run repeated on more classes, for the number of steps that its validation chose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from equimetric.configuration import load_config
from equimetric.errors import EquimetricError, unknown_name
from equimetric.runs.configuration import RunConfig
from equimetric.runs.folder import RunFolder
from equimetric.runs.model import TrainedModel
from equimetric.runs.refit import FINAL_MODEL_PARTS, RefitConfig
from equimetric.runs.result import RunResult
from equimetric.training.checkpoint import Checkpoint
from equimetric.training.loop import Progress, train
from equimetric.training.validation import count_plateau, is_best

__all__ = ["refit", "refit_config"]


def refit(
    run: str | Path,
    *,
    classes: str = "training",
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> TrainedModel:
    """Train a final model with the configuration and seed of a finished run, on more of its classes.

    `classes` is "training", the training classes with those of validation, or "all", for deployment. The number of
    steps is the best step of the run, with its learning rates up to there. Nothing is selected: the last weights are
    kept. Of "training" the test classes are evaluated once; of "all" no class is left to test.
    """
    return train(refit_config(run, classes), folder=folder, progress=progress)


def refit_config(run: str | Path, classes: str) -> RunConfig:
    """The configuration of a final model, from the folder of its source."""
    if classes not in FINAL_MODEL_PARTS:
        raise unknown_name("classes of a final model", classes, FINAL_MODEL_PARTS)
    folder = RunFolder(Path(run))
    result = require_source(folder)
    config = load_config(folder.path / "config.toml", RunConfig)
    key = ((folder.environment() or {}).get("key") or {}).get("content")
    if key is None:
        raise EquimetricError(f"{str(run)!r} is a run of an older version of Equimetric; train it again first")
    folder.require_parts(config)
    values = config.model_dump()
    values["refit"] = RefitConfig.model_validate(
        {
            "classes": classes,
            "steps": result.best_step,
            "lowered_at": plateaus(config, folder.history(), result.best_step),
            "source": key,
            "folder": str(run),
        }
    ).model_dump()
    if config.evaluation.cohort is not None:
        # Its validation classes are training classes now, and have chosen what was to be chosen.
        chosen = {} if result.cohort is None else result.cohort.model_dump(include={"form", "strength"})
        values["evaluation"]["cohort"] |= {**chosen, "part": "train"}
    return load_config(values, RunConfig)


def require_source(folder: RunFolder) -> RunResult:
    """The result of a run that a final model can repeat."""
    name, result = repr(str(folder.path)), folder.result()
    if result is None or result.status != "done":
        raise EquimetricError(f"{name} holds no finished training run; run it to its end first")
    if result.role == "refit":
        raise EquimetricError(f"{name} is a final model already; give the run that it repeats")
    if result.steps == 0:
        raise EquimetricError(f"{name} is a baseline, which takes no step; give a run that trains")
    if result.best_step == 0:
        raise EquimetricError(
            f"{name} was best before its first step, so there is nothing to repeat on more classes; "
            "find settings with which training helps first"
        )
    return result


def plateaus(config: RunConfig, history: list[dict[str, Any]], last: int) -> list[int]:
    """Steps up to `last` at which a run lowered its learning rates, from the validations in its log."""
    state, steps = Checkpoint(), []
    for record in history:
        if record["kind"] == "validation" and record["step"] <= last:
            state.step = record["step"]
            value, before = record[config.evaluation.selected_by], state.lowered
            if is_best(state, value):
                state.best_value, state.best_step, state.best_weights = value, state.step, {}
            count_plateau(state, config.optimizer.plateau_steps)
            steps += [state.step] * (state.lowered - before)
    return steps
