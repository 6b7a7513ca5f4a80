"""Starting a run with the network of another one: backbone and head, not the parameters of its objective."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from equimetric.errors import EquimetricError
from equimetric.learners import Learner
from equimetric.objectives import Objective, ObjectiveSum

if TYPE_CHECKING:
    from equimetric.runs.configuration import DataConfig, RunConfig

__all__ = ["load_start", "start_weights"]

SPLIT_KEYS = ("fold", "folds", "split_seed", "split", "parts", "held_out")
"""Keys of [data] that determine the training classes."""


def start_weights(folder: str) -> Path:
    """The weight file of the finished run in a folder."""
    # Imported late: a folder knows its key, and a key the weights that its run starts with.
    from equimetric.runs.folder import WEIGHTS, RunFolder

    path = Path(folder).expanduser()
    result = RunFolder(path).result()
    if result is None or result.status != "done" or not (path / WEIGHTS).exists():
        raise EquimetricError(f"model.start = {folder!r} holds no finished training run; run it to its end first")
    return path / WEIGHTS


def load_start(learner: Learner, config: RunConfig) -> None:
    """Load the weights of the run that `model.start` names into a new learner; its objective starts from scratch.

    That run must have been trained on none of the test and validation classes of this one.
    """
    # Imported late: both build on learners, which this one completes.
    from equimetric.runs.folder import RunFolder
    from equimetric.runs.model import load_all_weights

    assert config.model.start is not None
    path = start_weights(config.model.start)
    run = RunFolder(path.parent)
    require_unseen_classes(config.data, run.config(), config.model.start)
    weights = load_all_weights(run)
    state = learner.state_dict()
    objectives = tuple(
        f"{name}." for name, module in learner.named_modules() if isinstance(module, Objective | ObjectiveSum)
    )
    names = [name for name in state if not name.startswith(objectives)]
    for name in names:
        if name not in weights or weights[name].shape != state[name].shape:
            mismatch = "has none" if name not in weights else f"has shape {tuple(weights[name].shape)}"
            raise EquimetricError(
                f"the network in {config.model.start!r} does not fit: {name} of shape {tuple(state[name].shape)}, "
                f"where that run {mismatch}; use its [model] and [learner]"
            )
    learner.load_state_dict({name: weights[name] for name in names}, strict=False)


def require_unseen_classes(data: DataConfig, source: RunConfig, folder: str) -> None:
    """Raise an error where a run was trained on the same data by another split: on classes that are tested here."""
    if (data.name, data.options) != (source.data.name, source.data.options):
        return
    differences = [f"data.{name}" for name in SPLIT_KEYS if getattr(data, name) != getattr(source.data, name)]
    if images_set_aside(data) != images_set_aside(source.data):
        differences.append("data.rounds")
    if source.refit is not None:
        differences.append("refit")
    if differences:
        raise EquimetricError(
            f"model.start = {folder!r} was trained with another {differences[0]}, so what it has seen may be validated "
            "or tested on here; start from a run of the same split"
        )


def images_set_aside(data: DataConfig) -> dict[str, Any] | None:
    """The options that set aside images of training classes for all rounds."""
    return None if data.rounds is None else data.rounds.model_dump(include={"of", "test_share"})
