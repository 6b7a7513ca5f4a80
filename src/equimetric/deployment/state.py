"""The tensors that a deployed learner needs: all but those of training."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.learners import Learner

__all__ = ["deployed_state", "load_deployed_state"]


def training_names(learner: Learner) -> set[str]:
    """Names in `state_dict()` of tensors that only training needs."""
    training_modules = {id(module) for module in learner.training_only()}
    prefixes = tuple(f"{name}." for name, module in learner.named_modules() if id(module) in training_modules)
    return {name for name in learner.state_dict() if name.startswith(prefixes)}


def deployed_state(learner: Learner) -> dict[str, Tensor]:
    """The tensors of a learner that its embedding needs."""
    excluded = training_names(learner)
    return {name: tensor.contiguous() for name, tensor in learner.state_dict().items() if name not in excluded}


def load_deployed_state(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    """Load what `deployed_state` gave, and nothing else."""
    try:
        missing, unexpected = learner.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise EquimetricError(f"the weights do not fit the model: {error}; export the run again") from None
    unmatched = [*(set(missing) - training_names(learner)), *unexpected]
    if unmatched:
        raise EquimetricError(f"the weights do not fit the model: {sorted(unmatched)[0]!r}; export the run again")
