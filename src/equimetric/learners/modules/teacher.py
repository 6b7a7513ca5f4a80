"""A slowly moving copy of a network, and a queue of its outputs for earlier batches."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

__all__ = ["KeyQueue", "MovingAverage"]


class MovingAverage(nn.Module):
    """A copy of a module that follows it: θ′ ← m·θ′ + (1 − m)·θ after every step; it is never trained itself."""

    def __init__(self, module: nn.Module, momentum: float) -> None:
        super().__init__()
        self.module = copy.deepcopy(module).requires_grad_(False)
        self.momentum = momentum

    @torch.no_grad()
    def follow(self, module: nn.Module) -> None:
        """Move towards a module of the same shape; integer buffers are copied."""
        for average, target in zip(self.module.state_dict().values(), module.state_dict().values(), strict=True):
            if average.is_floating_point():
                average.lerp_(target.to(average.dtype), 1 - self.momentum)
            else:
                average.copy_(target)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Output of the copy, without gradient."""
        output: Tensor = self.module(images)
        return output


class KeyQueue(nn.Module):
    """The last `size` vectors that were put in, oldest first out; a buffer of the learner's state."""

    keys: Tensor
    labels: Tensor
    next: Tensor
    filled: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(size, dim))
        self.register_buffer("labels", torch.full((size,), -1))
        self.register_buffer("next", torch.zeros((), dtype=torch.int64))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def put(self, keys: Tensor, labels: Tensor) -> None:
        """Append (B, d) vectors and their (B,) labels; of more than the queue holds only the last are kept."""
        size = len(self.keys)
        keys, labels = keys[-size:], labels[-size:]
        positions = (self.next + torch.arange(len(keys), device=self.keys.device)) % size
        self.keys[positions] = keys.to(self.keys.dtype)
        self.labels[positions] = labels
        self.next.copy_((self.next + len(keys)) % size)
        self.filled.copy_((self.filled + len(keys)).clamp_max(size))

    def stored(self) -> tuple[Tensor, Tensor]:
        """(n, d) vectors and (n,) labels stored so far, in the order of their positions."""
        count = int(self.filled)
        return self.keys[:count], self.labels[:count]
