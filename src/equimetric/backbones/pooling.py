"""From feature maps to one vector per image."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from equimetric.errors import unknown_name

__all__ = [
    "POOLINGS",
    "AveragePlusMaxPooling",
    "AveragePooling",
    "GeneralizedMeanPooling",
    "MaxPooling",
    "build_pooling",
]


class AveragePooling(nn.Module):
    """The mean over all places.   f_c = mean_{hw} x_chw"""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) → (B, C)."""
        return maps.mean(dim=(2, 3))


class MaxPooling(nn.Module):
    """The largest value of all places.   f_c = max_{hw} x_chw"""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) → (B, C)."""
        return maps.amax(dim=(2, 3))


class AveragePlusMaxPooling(nn.Module):
    """The sum of both.   f_c = mean_{hw} x_chw + max_{hw} x_chw"""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) → (B, C)."""
        return maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3))


class GeneralizedMeanPooling(nn.Module):
    """Between mean (p = 1) and maximum (p → ∞), with a learned exponent.   f_c = (mean_{hw} max(x_chw, ε)^p)^{1/p}

    Radenović, Tolias, Chum: Fine-tuning CNN image retrieval with no human annotation (2018).
    """

    def __init__(self, exponent: float = 3.0, smallest: float = 1e-6) -> None:
        super().__init__()
        self.exponent = nn.Parameter(torch.tensor(float(exponent)))
        self.smallest = smallest

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) → (B, C)."""
        return maps.clamp(min=self.smallest).pow(self.exponent).mean(dim=(2, 3)).pow(1 / self.exponent)


POOLINGS: dict[str, Callable[[], nn.Module]] = {
    "avg": AveragePooling,
    "max": MaxPooling,
    "avg+max": AveragePlusMaxPooling,
    "gem": GeneralizedMeanPooling,
}
"""Name → module that takes (B, C, h, w) to (B, C)."""


def build_pooling(name: str) -> nn.Module:
    """A pooling by name."""
    if name not in POOLINGS:
        raise unknown_name("pooling", name, POOLINGS)
    return POOLINGS[name]()
