"""Weights of samples and of classes. A weight is a multiplicity: 0 is as if absent, 2 as if present twice.

A sample of weight w counts w times as a query, in sums and in the numbers they are divided by, and w times as a
reference of others. Whole weights are thus repeated rows whose copies are no pairs of one another:

    objective(x, y, sample_weight=w)
    repeated = torch.arange(len(x)).repeat_interleave(w)
    x, y = x[repeated], y[repeated]
    objective(x, y, x, y, self_mask=repeated[:, None] == repeated)

Class weights are sample weights by label, times those of the samples.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, not_a_tensor
from equimetric.references.relation import Labels

__all__ = ["check_class_weight", "check_weight", "weigh_samples"]


def check_class_weight(values: Tensor | Sequence[float] | None) -> Tensor | None:
    """(C,) weights by class id."""
    if values is None:
        return None
    try:
        weight = (
            values.detach().clone() if isinstance(values, Tensor) else torch.tensor(list(values), dtype=torch.float64)
        )
    except (TypeError, ValueError, RuntimeError):
        weight = torch.zeros(0)
    if weight.ndim != 1 or not len(weight) or not is_weight(weight):
        raise EquimetricError("class_weight must be one finite number of 0 or more for each class, by class id")
    return weight if weight.is_floating_point() else weight.double()


def check_weight(weight: Tensor | None, samples: Tensor, name: str = "sample_weight") -> Tensor | None:
    """(N,) weights of the samples, in their precision."""
    if weight is None:
        return None
    if not isinstance(weight, Tensor):
        raise not_a_tensor(weight, name)
    if weight.shape != samples.shape[:1]:
        raise EquimetricError(
            f"{name} must be one weight for each of {len(samples)} samples, got shape {tuple(weight.shape)}"
        )
    if not torch.compiler.is_compiling() and not is_weight(weight):
        raise EquimetricError(f"{name} must hold finite numbers of 0 or more; a weight is how often a sample counts")
    return weight.detach().to(samples.device, samples.dtype if samples.dtype == torch.float64 else torch.float32)


def is_weight(weight: Tensor) -> bool:
    """Whether all entries are finite numbers of 0 or more."""
    is_real = not weight.is_complex() and weight.dtype != torch.bool
    return is_real and bool((weight.isfinite() & (weight >= 0)).all())


def weigh_samples(
    class_weight: Tensor | None, labels: Labels | None, weight: Tensor | None, samples: Tensor
) -> Tensor | None:
    """The weights of samples times those of their classes."""
    if class_weight is None:
        return weight
    if not isinstance(labels, Tensor) or labels.ndim != 1:
        raise EquimetricError("class_weight needs one class id per sample as labels; give sample_weight instead")
    if len(labels) and not torch.compiler.is_compiling():
        low, high = map(int, labels.aminmax())
        if low < 0 or high >= len(class_weight):
            raise EquimetricError(
                f"class_weight holds {len(class_weight)} weights, but class ids are {low} … {high}; "
                "give one weight for every class id"
            )
    class_weights = check_weight(class_weight[labels.to(class_weight.device)], samples)
    return class_weights if weight is None or class_weights is None else class_weights * weight
