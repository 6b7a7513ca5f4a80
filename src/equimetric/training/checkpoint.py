"""Checkpoints: tensors in safetensors, everything else in JSON; a resumed run is equal bit for bit."""

import time
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from equimetric.checksums import json_document, read_json
from equimetric.errors import DamagedFileError, EquimetricError
from equimetric.learners import Learner
from equimetric.runs.folder import LOG, RunFolder
from equimetric.runs.model import parse_weights
from equimetric.training.averaging import start_average
from equimetric.training.optimizers import Optimizers
from equimetric.training.sampling import TaskBatches

__all__ = [
    "Checkpoint",
    "copy_weights",
    "load_best_weights",
    "load_checkpoint",
    "remove_checkpoints",
    "save_checkpoint",
    "saved_step",
]

POINTER = "checkpoint.json"
TENSORS = "checkpoint-*.safetensors"


@dataclass
class Checkpoint:
    """The progress of a run.

    Attributes:
        step: steps taken.
        best_step: the step with the best validation so far.
        best_value: the validation value there.
        best_scores: all validation scores there.
        best_weights: a copy of the learner's tensors there.
        average: the moving average of the parameters, where one is kept.
        lowered: how often learning rates were lowered because validation had reached a plateau.
        lowered_at: the step at which this last happened.
        history: the records of all validations.
        first_spread: the spread of embeddings when it was first measured, by the images that were embedded.
        collapse: the warning about a collapse; empty as long as there is none.
        sums, counts: of the loss terms since the last line of the log, if a run was stopped between two lines.
        log_bytes: length of the log when the checkpoint was written; what follows is written again after resuming.
        seconds: training time so far, including the time before resuming.
        saved_at: when it was last written, or else begun, by `time.monotonic`.
    """

    step: int = 0
    best_step: int = 0
    best_value: float = float("-inf")
    best_scores: dict[str, float] = field(default_factory=dict)
    best_weights: dict[str, Tensor] | None = None
    average: dict[str, Tensor] | None = None
    lowered: int = 0
    lowered_at: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    first_spread: dict[str, float] = field(default_factory=dict)
    collapse: str = ""
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    log_bytes: int = 0
    seconds: float = 0.0
    saved_at: float = field(default_factory=lambda: time.monotonic())


NON_JSON_FIELDS = ("best_weights", "average", "saved_at")
JSON_FIELDS = [entry.name for entry in fields(Checkpoint) if entry.name not in NON_JSON_FIELDS]
"""Fields of a checkpoint that are written as JSON; the others are tensors, and the time of this process."""


def copy_weights(learner: Learner, frozen: Collection[str]) -> dict[str, Tensor]:
    """A copy of the learner's state without frozen entries; the tensors of `state_dict()` itself change in training."""
    return {
        name: tensor.detach().clone().contiguous()
        for name, tensor in learner.state_dict().items()
        if name not in frozen
    }


def restore_weights(learner: Learner, weights: dict[str, Tensor]) -> None:
    """Load weights saved by `copy_weights`; frozen parameters are unchanged."""
    mismatch = learner.load_state_dict(weights, strict=False)
    missing = set(mismatch.missing_keys) - learner.frozen_state()
    if missing or mismatch.unexpected_keys:
        raise EquimetricError(
            f"a checkpoint does not fit its learner ({', '.join([*missing, *mismatch.unexpected_keys])}); "
            "remove the run's folder and run it again"
        )


def load_best_weights(learner: Learner, state: Checkpoint) -> None:
    """Load the weights of the best validation."""
    assert state.best_weights is not None
    restore_weights(learner, state.best_weights)


def save_checkpoint(
    run: RunFolder,
    checkpoint: Checkpoint,
    learner: Learner,
    optimizer: Optimizers,
    batches: TaskBatches,
    frozen: Collection[str],
) -> None:
    """Write a checkpoint; the pointer file is replaced last, so a crash at any moment leaves a whole one.

    The log that it counts on is brought to the disk first.
    """
    if not run.writes:
        return
    tensors = {f"learner.{name}": tensor for name, tensor in copy_weights(learner, frozen).items()}
    tensors |= {f"best.{name}": tensor for name, tensor in (checkpoint.best_weights or {}).items()}
    tensors |= {f"average.{name}": tensor for name, tensor in (checkpoint.average or {}).items()}
    scalars: dict[str, dict[str, Any]] = {}
    for parameter, values in optimizer.state().items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{parameter}.{name}"] = value.detach().clone()
            else:
                scalars.setdefault(str(parameter), {})[name] = value
    samplers = batches.state_dict()
    for task, sampler in samplers.items():
        tensors |= {f"batches.{task}.{name}": tensor for name, tensor in sampler.pop("mined", {}).items()}
    file = f"checkpoint-{checkpoint.step:08d}.safetensors"
    run.write(file, save({key: tensor.contiguous() for key, tensor in tensors.items()}), sync=False)
    log = run.sync_log()
    run.sync_all()
    checkpoint.log_bytes = log["bytes"]
    record = {
        "tensors": file,
        "files": {file: run.written[file], LOG: log},
        "optimizer_numbers": scalars,
        "batches": samplers,
        **{name: getattr(checkpoint, name) for name in JSON_FIELDS},
    }
    run.write(POINTER, json_document(record))
    checkpoint.saved_at = time.monotonic()
    run.remove(*(old.name for old in run.path.glob(TENSORS) if old.name != file))


def read_checkpoint(run: RunFolder) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """Record and tensors of the last checkpoint; None where there is none, or, with a warning, where it is damaged."""
    pointer = run.path / POINTER
    if not pointer.exists():
        return None
    try:
        record = read_json(pointer, dict, "")
        name = Path(record["tensors"]).name
        return record, parse_weights(run.path / name, run.read(name, record.get("files", {}).get(name)))
    except (DamagedFileError, KeyError, TypeError) as error:
        problem = error.problem if isinstance(error, DamagedFileError) else f"{pointer} is damaged ({error!r})"
        warnings.warn(f"{problem}; the run starts again at step 0, and ends with the same result", stacklevel=2)
        return None


def load_checkpoint(run: RunFolder, learner: Learner, optimizer: Optimizers, batches: TaskBatches) -> Checkpoint | None:
    """Restore learner, optimiser, samplers and log from the last checkpoint; None where there is none."""
    saved = read_checkpoint(run)
    if saved is None:
        run.cut_log(0)
        return None
    record, tensors = saved
    parts: dict[str, dict[str, Tensor]] = {"learner": {}, "best": {}, "average": {}, "optimizer": {}, "batches": {}}
    for key, tensor in tensors.items():
        part, _, name = key.partition(".")
        parts[part][name] = tensor
    restore_weights(learner, parts["learner"])
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in parts["optimizer"].items():
        parameter, _, name = key.partition(".")
        state.setdefault(int(parameter), {})[name] = tensor
    for parameter, values in record["optimizer_numbers"].items():
        state.setdefault(int(parameter), {}).update(values)
    optimizer.load_state(state)
    mined: dict[str, dict[str, Tensor]] = {task: {} for task in record["batches"]}
    for key, tensor in parts["batches"].items():
        task, _, name = key.rpartition(".")
        mined[task][name] = tensor
    batches.load_state_dict({task: {**sampler, "mined": mined[task]} for task, sampler in record["batches"].items()})
    checkpoint = Checkpoint(**{name: record[name] for name in JSON_FIELDS if name in record})
    run.cut_log(checkpoint.log_bytes, record.get("files", {}).get(LOG))
    # Empty for a learner without parameters.
    checkpoint.best_weights = parts["best"]
    if parts["average"]:
        # In the parameters' memory layout, which decides the last digits of results computed with them.
        checkpoint.average = start_average(learner, learner.frozen_state())
        for name, mean in checkpoint.average.items():
            mean.copy_(parts["average"][name])
    return checkpoint


def saved_step(run: RunFolder) -> int | None:
    """The step at which a run would resume; None where it has no checkpoint to read."""
    try:
        return int(read_json(run.path / POINTER, dict, "")["step"])
    except (DamagedFileError, ValueError, KeyError, TypeError):
        return None


def remove_checkpoints(run: RunFolder) -> None:
    """Delete the files of a checkpoint; the pointer first, so that no crash leaves it dangling."""
    if (run.path / POINTER).exists():
        run.remove(POINTER)
    run.remove(*(file.name for file in run.path.glob(TENSORS)))
