"""Gradients of a batch: in one pass through the network, or in two for batches that do not fit at once."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from equimetric.errors import EquimetricError
from equimetric.learners import Batch, Learner
from equimetric.training.machine import Machine
from equimetric.training.processes import Processes

__all__ = ["add_gradients", "require_no_batch_statistics"]

Trainable = Learner | DistributedDataParallel


def add_gradients(
    trainable: Trainable,
    batch: Batch,
    machine: Machine,
    processes: Processes,
    *,
    share: float = 1.0,
    at_once: int | None = None,
    last: bool = True,
) -> dict[str, Tensor]:
    """Add `share` times the gradient of a batch's loss to the parameters' gradients; gives the loss and its terms.

    With `at_once` below the size of the batch it passes the network twice, so many images at a time, as in Gao et al.:
    Scaling deep contrastive learning batch size under memory limited setup (2021). `last` says that the gradient of
    the step is then complete: only then do several processes average it.
    """
    learner = trainable.module if isinstance(trainable, DistributedDataParallel) else trainable
    assert isinstance(learner, Learner)
    if at_once is not None and at_once < len(batch.images):
        return add_gradients_in_two_passes(trainable, learner, batch, machine, processes, share, at_once, last)

    def losses() -> dict[str, Tensor]:
        with machine.autocast():
            with processes.own_draws():
                outputs = learner.outputs(batch.images)
            return learner.losses_of(outputs, batch)

    with averaging(trainable, last):
        terms: dict[str, Tensor] = trainable(losses)
        return add_gradient_of(terms, share)


def add_gradients_in_two_passes(
    trainable: Trainable,
    learner: Learner,
    batch: Batch,
    machine: Machine,
    processes: Processes,
    share: float,
    at_once: int,
    last: bool,
) -> dict[str, Tensor]:
    """∂L/∂θ = Σ_parts (∂Z_part/∂θ)ᵀ ∂L/∂Z_part, where the outputs Z of the whole batch are found without a graph.

    Random numbers drawn inside the network (dropout) are drawn again in the second pass. Parts go backwards in
    reverse order, as autograd itself takes them, so the sums are those of one pass over the same parts, bit for bit.
    """
    parts = torch.split(batch.images, at_once)
    outputs, states = [], []
    with torch.no_grad(), machine.autocast(), processes.own_draws():
        for part in parts:
            states.append(random_state(machine.device))
            outputs.append(learner.outputs(part))
    whole = torch.cat(outputs).requires_grad_()
    with machine.autocast():
        terms = learner.losses_of(whole, batch)
    values = add_gradient_of(terms, share)
    gradient = torch.zeros_like(whole) if whole.grad is None else whole.grad
    after = random_state(machine.device)
    pieces = list(zip(parts, states, torch.split(gradient, at_once), strict=True))
    for number, (part, state, upstream) in reversed(list(enumerate(pieces))):
        set_random_state(state, machine.device)
        with averaging(trainable, last and number == 0), machine.autocast():
            again: Tensor = trainable(lambda part=part: learner.outputs(part))
            again.backward(upstream)  # type: ignore[no-untyped-call]
    set_random_state(after, machine.device)
    return values


def add_gradient_of(terms: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Back-propagate `share` times the sum of the terms; the values of this 'loss' and of the terms."""
    loss = torch.stack(list(terms.values())).sum()
    loss.backward(loss.new_tensor(share))  # type: ignore[no-untyped-call]
    return {"loss": loss.detach(), **{name: value.detach() for name, value in terms.items()}}


def averaging(trainable: Trainable, wanted: bool) -> AbstractContextManager[object]:
    """Whether backward passes inside the block average gradients over processes."""
    if isinstance(trainable, DistributedDataParallel) and not wanted:
        return trainable.no_sync()
    return nullcontext()


def random_state(device: torch.device) -> tuple[Tensor, ...]:
    """The states of the generators that the network draws from."""
    on_card = (torch.cuda.get_rng_state(device),) if device.type == "cuda" else ()
    return (torch.get_rng_state(), *on_card)


def set_random_state(state: tuple[Tensor, ...], device: torch.device) -> None:
    """Go back to what `random_state` gave."""
    torch.set_rng_state(state[0])
    for on_card in state[1:]:
        torch.cuda.set_rng_state(on_card, device)


def require_no_batch_statistics(learner: Learner, last_step: int) -> None:
    """Refuse two passes for a network whose outputs, by its last step, depend on which images pass it together."""
    learner.begin_step(last_step)
    learner.train()
    for name, module in learner.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            raise EquimetricError(
                f"batch.at_once splits the batch, and {name!r} would normalise each part by its own statistics; "
                "set model.frozen_batch_norm = true, choose a network without batch normalisation, or leave it out"
            )
