"""Checkpoints: tensors in safetensors, everything else in JSON, exact enough to resume bit for bit."""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from equimetric.batches import Batches
from equimetric.errors import EquimetricError
from equimetric.learners import Learner
from equimetric.training.averaging import start_average
from equimetric.training.optimizers import Optimizers
from equimetric.training.run_folder import RunFolder

__all__ = [
    "Checkpoint",
    "copy_weights",
    "load_checkpoint",
    "load_weights",
    "remove_checkpoints",
    "save_checkpoint",
    "save_weights",
]

POINTER = "checkpoint.json"


@dataclass
class Checkpoint:
    """Where a run stands.

    Attributes:
        step: steps taken.
        best_step: the step with the best validation so far.
        best_value: the validation value there.
        best_scores: all validation scores there.
        best_weights: a copy of the learner's tensors there.
        average: the moving average of the parameters, where one is kept.
        lowered: how often learning rates were lowered because validation had reached a plateau.
        lowered_at: the step at which this last happened.
        log_bytes: length of the log when the checkpoint was written; what follows is written again after resuming.
        seconds: training time so far, over all sittings.
    """

    step: int = 0
    best_step: int = 0
    best_value: float = float("-inf")
    best_scores: dict[str, float] = field(default_factory=dict)
    best_weights: dict[str, Tensor] | None = None
    average: dict[str, Tensor] | None = None
    lowered: int = 0
    lowered_at: int = 0
    log_bytes: int = 0
    seconds: float = 0.0


PLAIN_FIELDS = [one.name for one in fields(Checkpoint) if one.name not in ("best_weights", "average")]
"""What of a checkpoint is written as JSON; the rest are tensors."""


def copy_weights(learner: Learner) -> dict[str, Tensor]:
    """A copy of the learner's state: `state_dict()` alone holds references that go on changing."""
    return {name: tensor.detach().clone().contiguous() for name, tensor in learner.state_dict().items()}


def save_weights(run: RunFolder, name: str, weights: dict[str, Tensor]) -> None:
    """Write tensors as safetensors into the run's folder, atomically."""
    if run.writes:
        run.write(name, save({key: tensor.contiguous() for key, tensor in weights.items()}))


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read tensors from safetensors."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise EquimetricError(f"there are no weights at {str(path)!r}; has the run finished?") from None
    except Exception as error:
        raise EquimetricError(f"the weights at {str(path)!r} cannot be read: {error}") from None


def save_checkpoint(
    run: RunFolder, checkpoint: Checkpoint, learner: Learner, optimizer: Optimizers, batches: Batches
) -> None:
    """Write a checkpoint; the pointer file is replaced last, so a crash at any moment leaves a whole one."""
    if not run.writes:
        return
    tensors = {f"learner.{name}": tensor for name, tensor in copy_weights(learner).items()}
    tensors |= {f"best.{name}": tensor for name, tensor in (checkpoint.best_weights or {}).items()}
    tensors |= {f"average.{name}": tensor for name, tensor in (checkpoint.average or {}).items()}
    numbers: dict[str, dict[str, Any]] = {}
    for parameter, values in optimizer.state().items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{parameter}.{name}"] = value.detach().clone()
            else:
                numbers.setdefault(str(parameter), {})[name] = value
    sampler = batches.state_dict()
    tensors |= {f"batches.{name}": tensor for name, tensor in sampler.pop("mined", {}).items()}
    file = f"checkpoint-{checkpoint.step:08d}.safetensors"
    save_weights(run, file, tensors)
    record = {
        "tensors": file,
        "optimizer_numbers": numbers,
        "batches": sampler,
        **{name: getattr(checkpoint, name) for name in PLAIN_FIELDS},
    }
    run.write(POINTER, json.dumps(record))
    for old in run.path.glob("checkpoint-*.safetensors"):
        if old.name != file:
            old.unlink(missing_ok=True)


def load_checkpoint(run: RunFolder, learner: Learner, optimizer: Optimizers, batches: Batches) -> Checkpoint | None:
    """Bring learner, optimiser and batches back to the last checkpoint; None where there is none."""
    pointer = run.path / POINTER
    if not pointer.exists():
        return None
    record = json.loads(pointer.read_text(encoding="utf-8"))
    tensors = load_weights(run.path / Path(record["tensors"]).name)
    parts: dict[str, dict[str, Tensor]] = {"learner": {}, "best": {}, "average": {}, "optimizer": {}, "batches": {}}
    for key, tensor in tensors.items():
        part, _, name = key.partition(".")
        parts[part][name] = tensor
    learner.load_state_dict(parts["learner"])
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in parts["optimizer"].items():
        parameter, _, name = key.partition(".")
        state.setdefault(int(parameter), {})[name] = tensor
    for parameter, values in record["optimizer_numbers"].items():
        state.setdefault(int(parameter), {}).update(values)
    optimizer.load_state(state)
    batches.load_state_dict({**record["batches"], "mined": parts["batches"]})
    checkpoint = Checkpoint(**{name: record[name] for name in PLAIN_FIELDS})
    checkpoint.best_weights = parts["best"] or None
    if parts["average"]:
        # In the parameters' own memory layout, which decides on the last digits of what is computed with them.
        checkpoint.average = start_average(learner)
        for name, mean in checkpoint.average.items():
            mean.copy_(parts["average"][name])
    return checkpoint


def remove_checkpoints(run: RunFolder) -> None:
    """Delete what only an unfinished run needs; the pointer first, so that no crash leaves it dangling."""
    if run.writes:
        (run.path / POINTER).unlink(missing_ok=True)
        for file in run.path.glob("checkpoint-*.safetensors"):
            file.unlink(missing_ok=True)
