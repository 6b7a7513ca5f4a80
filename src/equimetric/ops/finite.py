"""NaN and infinite embeddings: a loss of them is NaN, whatever its comparisons make of them."""

from math import isfinite, nan

import torch
from torch import Tensor

from equimetric.ops.products import is_tracing

__all__ = ["nan_factor"]


def nan_factor(*embeddings: Tensor | None) -> Tensor | None:
    """Factor for the loss: NaN if an embedding is not finite, else 1.

    Comparisons with NaN are False, so hinges and selections leave such a row out, and without this factor the loss of
    the other rows would pass for that of the batch. None where all embeddings are known to be finite.
    """
    unchecked = [tensor for tensor in embeddings if isinstance(tensor, Tensor) and not is_known_finite(tensor)]
    if not unchecked:
        return None
    finite = torch.stack([tensor.isfinite().all().to(unchecked[0].device) for tensor in unchecked])
    return torch.where(finite.all(), 1.0, nan)


def is_known_finite(embeddings: Tensor) -> bool:
    """Whether a finite sum proves finite entries; False where finding out takes long."""
    if not embeddings.is_floating_point():
        return True
    if not embeddings.is_cpu or is_tracing():
        return False
    return isfinite(embeddings.detach().sum().item())
