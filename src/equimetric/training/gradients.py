"""Gradients of a batch: in one pass through the network, or in two for batches that do not fit at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from equimetric.errors import EquimetricError
from equimetric.learners import Batch, Learner
from equimetric.processes import SINGLE, Processes
from equimetric.training.distributed import Trainable, gather_outputs
from equimetric.training.placement import Placement

__all__ = ["backward", "require_no_batch_statistics"]

Observe = Callable[[Tensor], None]


def backward(
    trainable: Trainable,
    batch: Batch,
    placement: Placement,
    processes: Processes = SINGLE,
    *,
    scale: float = 1.0,
    at_once: int | None = None,
    sync: bool = True,
    observe: Observe | None = None,
) -> dict[str, Tensor]:
    """Add `scale` times the gradient of a batch's loss to the parameters' gradients; gives the loss and its terms.

    With `at_once` below the size of the batch it passes the network twice, `at_once` images at a time, as in Gao et
    al.: Scaling deep contrastive learning batch size under memory limited setup (2021). `sync` averages gradients over
    processes. `observe` gets the detached embeddings of all processes.
    """
    learner = trainable.learner
    if at_once is not None and at_once < len(batch):
        return backward_in_two_passes(trainable, batch, placement, processes, scale, at_once, sync, observe)

    def losses() -> dict[str, Tensor]:
        with placement.autocast():
            with processes.per_rank_rng("outputs", batch.number):
                outputs = learner.outputs(batch)
            outputs, whole = gather_outputs(outputs, batch, processes)
            notify_observer(observe, learner, outputs)
            return learner.losses(outputs, whole)

    with trainable.sync(sync):
        return backward_terms(trainable.call(losses), scale)


def backward_in_two_passes(
    trainable: Trainable,
    batch: Batch,
    placement: Placement,
    processes: Processes,
    scale: float,
    at_once: int,
    sync: bool,
    observe: Observe | None,
) -> dict[str, Tensor]:
    """∂L/∂θ = Σ_parts (∂Z_part/∂θ)ᵀ ∂L/∂Z_part, where the outputs Z of the whole batch are computed without a graph.

    The second pass draws the random numbers of the first again (dropout). It visits the parts in reverse, as autograd
    does, so the sums equal those of one pass over the same parts bit for bit.
    """
    learner = trainable.learner
    parts = [batch.rows(slice(start, start + at_once)) for start in range(0, len(batch), at_once)]
    outputs, states = [], []
    with torch.no_grad(), placement.autocast(), processes.per_rank_rng("outputs", batch.number):
        for part in parts:
            states.append(random_state(placement.device))
            outputs.append(learner.outputs(part))
    whole = {name: torch.cat([part_outputs[name] for part_outputs in outputs]).requires_grad_() for name in outputs[0]}
    with placement.autocast():
        gathered, labelled = gather_outputs(whole, batch, processes)
        notify_observer(observe, learner, gathered)
        terms = learner.losses(gathered, labelled)
    values = backward_terms(terms, scale)
    # An output without gradient is not used by the loss: as in a single pass, its parameters get no gradient.
    gradients = {name: rows.grad for name, rows in whole.items() if rows.grad is not None}
    state_after = random_state(placement.device)
    for index in reversed(range(len(parts))):
        set_random_state(states[index], placement.device)
        rows = slice(index * at_once, (index + 1) * at_once)
        with trainable.sync(sync and index == 0), placement.autocast():
            recomputed: dict[str, Tensor] = trainable.call(partial(learner.outputs, parts[index]))
            trained = [name for name in gradients if recomputed[name].requires_grad]
            torch.autograd.backward([recomputed[name] for name in trained], [gradients[name][rows] for name in trained])
    set_random_state(state_after, placement.device)
    return values


def notify_observer(observe: Observe | None, learner: Learner, outputs: Mapping[str, Tensor]) -> None:
    """Pass the detached embeddings to the observer, if there is one."""
    if observe is not None:
        with torch.no_grad():
            observe(learner.embedding({name: rows.detach() for name, rows in outputs.items()}))


def backward_terms(terms: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """Back-propagate `scale` times the sum of the terms; the values of this 'loss' and of the terms."""
    if not terms or "loss" in terms:
        raise EquimetricError("losses() of a learner must name at least one term, and none of them 'loss', their sum")
    values = list(terms.values())
    loss = values[0] if len(values) == 1 else torch.stack(values).sum()
    loss.backward(None if scale == 1 else loss.new_tensor(scale))  # type: ignore[no-untyped-call]
    return {"loss": loss.detach(), **{name: value.detach() for name, value in terms.items()}}


def random_state(device: torch.device) -> tuple[Tensor, ...]:
    """The states of the generators that the network draws from."""
    cuda = (torch.cuda.get_rng_state(device),) if device.type == "cuda" else ()
    return (torch.get_rng_state(), *cuda)


def set_random_state(state: tuple[Tensor, ...], device: torch.device) -> None:
    """Restore the states that `random_state` returned."""
    torch.set_rng_state(state[0])
    for cuda_state in state[1:]:
        torch.cuda.set_rng_state(cuda_state, device)


def require_no_batch_statistics(learner: Learner, last_step: int) -> None:
    """Raise an error where the outputs, by the last step, depend on which images pass the network together."""
    learner.before_step(last_step)
    learner.train()
    for name, module in learner.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            raise EquimetricError(
                f"batch.at_once splits the batch, and {name!r} would normalise each part by its own statistics; "
                "set model.frozen_batch_norm = true, choose a network without batch normalisation, or leave it out"
            )
