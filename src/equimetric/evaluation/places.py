"""Where a mask is set."""

import numpy as np
import torch
from torch import Tensor

__all__ = ["places_of"]


def places_of(mask: Tensor) -> Tensor:
    """Places, ascending and counted along the rows, at which a mask of any shape is true.

    On CPU numpy finds few among many several times faster than torch.
    """
    if mask.device.type != "cpu":
        return mask.view(-1).nonzero().flatten()
    return torch.from_numpy(np.flatnonzero(mask.numpy()))
