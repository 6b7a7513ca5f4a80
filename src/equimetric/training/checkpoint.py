"""Checkpoints: tensors in safetensors, everything else in JSON, exact enough to resume bit for bit."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor
from torch.optim import Optimizer

from equimetric.batches import Batches
from equimetric.errors import EquimetricError
from equimetric.files import write_atomically
from equimetric.learners import Learner

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
        best_weights: a copy of the learner's tensors there.
        log_bytes: length of the log when the checkpoint was written; what follows is written again after resuming.
        seconds: training time so far, over all sittings.
    """

    step: int = 0
    best_step: int = 0
    best_value: float = float("-inf")
    best_weights: dict[str, Tensor] | None = None
    log_bytes: int = 0
    seconds: float = 0.0


def copy_weights(learner: Learner) -> dict[str, Tensor]:
    """A copy of the learner's state: `state_dict()` alone holds references that go on changing."""
    return {name: tensor.detach().clone().contiguous() for name, tensor in learner.state_dict().items()}


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Write tensors as safetensors, atomically."""
    write_atomically(path, save({name: tensor.contiguous() for name, tensor in weights.items()}))


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read tensors from safetensors."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise EquimetricError(f"there are no weights at {str(path)!r}; has the run finished?") from None
    except Exception as error:
        raise EquimetricError(f"the weights at {str(path)!r} cannot be read: {error}") from None


def save_checkpoint(
    folder: Path, checkpoint: Checkpoint, learner: Learner, optimizer: Optimizer, batches: Batches
) -> None:
    """Write a checkpoint; the pointer file is replaced last, so a crash at any moment leaves a whole one."""
    state = optimizer.state_dict()
    tensors = {f"learner.{name}": tensor for name, tensor in copy_weights(learner).items()}
    tensors |= {f"best.{name}": tensor for name, tensor in (checkpoint.best_weights or {}).items()}
    numbers: dict[str, dict[str, Any]] = {}
    for parameter, values in state["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{parameter}.{name}"] = value.detach().clone()
            else:
                numbers.setdefault(str(parameter), {})[name] = value
    sampler = batches.state_dict()
    tensors |= {f"batches.{name}": tensor for name, tensor in sampler.pop("mined", {}).items()}
    file = f"checkpoint-{checkpoint.step:08d}.safetensors"
    save_weights(folder / file, tensors)
    record = {
        "tensors": file,
        "step": checkpoint.step,
        "best_step": checkpoint.best_step,
        "best_value": checkpoint.best_value,
        "log_bytes": checkpoint.log_bytes,
        "seconds": checkpoint.seconds,
        "optimizer_numbers": numbers,
        "batches": sampler,
    }
    write_atomically(folder / POINTER, json.dumps(record))
    for old in folder.glob("checkpoint-*.safetensors"):
        if old.name != file:
            old.unlink(missing_ok=True)


def load_checkpoint(folder: Path, learner: Learner, optimizer: Optimizer, batches: Batches) -> Checkpoint | None:
    """Bring learner, optimiser and batches back to the last checkpoint; None where there is none."""
    pointer = folder / POINTER
    if not pointer.exists():
        return None
    record = json.loads(pointer.read_text(encoding="utf-8"))
    tensors = load_weights(folder / Path(record["tensors"]).name)
    parts: dict[str, dict[str, Tensor]] = {"learner": {}, "best": {}, "optimizer": {}, "batches": {}}
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
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    batches.load_state_dict({**record["batches"], "mined": parts["batches"]})
    return Checkpoint(
        step=record["step"],
        best_step=record["best_step"],
        best_value=record["best_value"],
        best_weights=parts["best"] or None,
        log_bytes=record["log_bytes"],
        seconds=record["seconds"],
    )


def remove_checkpoints(folder: Path) -> None:
    """Delete what only an unfinished run needs; the pointer first, so that no crash leaves it dangling."""
    (folder / POINTER).unlink(missing_ok=True)
    for file in folder.glob("checkpoint-*.safetensors"):
        file.unlink(missing_ok=True)
