"""A moving average of the weights, evaluated and kept in place of the weights themselves."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["averaged_weights", "start_average", "update_average"]


def start_average(learner: nn.Module, frozen: Collection[str] = ()) -> dict[str, Tensor]:
    """The average before the first step: a copy of all parameters but frozen ones. Buffers are not averaged."""
    return {name: value.detach().clone() for name, value in learner.named_parameters() if name not in frozen}


@torch.no_grad()
def update_average(average: dict[str, Tensor], learner: nn.Module, decay: float, step: int) -> None:
    """θ̄ ← d θ̄ + (1 − d) θ after step t, with d = min(decay, (1 + t) / (10 + t)): a young average forgets faster."""
    weight = 1 - min(decay, (1 + step) / (10 + step))
    parameters = dict(learner.named_parameters())
    torch._foreach_lerp_(list(average.values()), [parameters[name].detach() for name in average], weight)


@contextmanager
def averaged_weights(learner: nn.Module, average: dict[str, Tensor] | None) -> Iterator[None]:
    """Use the averaged weights inside the block; without an average the learner is unchanged."""
    if average is None:
        yield
        return
    parameters = dict(learner.named_parameters())
    saved = {name: parameters[name].data for name in average}
    for name, mean in average.items():
        parameters[name].data = mean
    try:
        yield
    finally:
        for name, values in saved.items():
            parameters[name].data = values
