"""From feature maps to one vector per image."""

import torch
from torch import Tensor, nn

from equimetric.backbones.registry import POOLINGS, pooling

__all__ = ["AveragePlusMaxPooling", "AveragePooling", "GeneralizedMeanPooling", "MaxPooling", "build_pooling"]


@pooling("avg")
class AveragePooling(nn.Module):
    """The mean over all positions.   f_c = mean_{hw} x_chw"""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) → (B, C)."""
        return maps.mean(dim=(2, 3))


@pooling("max")
class MaxPooling(nn.Module):
    """The maximum over all positions.   f_c = max_{hw} x_chw"""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) → (B, C)."""
        return maps.amax(dim=(2, 3))


@pooling("avg+max")
class AveragePlusMaxPooling(nn.Module):
    """The sum of mean and maximum.   f_c = mean_{hw} x_chw + max_{hw} x_chw"""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) → (B, C)."""
        return maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3))


@pooling("gem")
class GeneralizedMeanPooling(nn.Module):
    """Between mean (p = 1) and maximum (p → ∞), with a learned exponent.   f_c = (mean_{hw} max(x_chw, ε)^p)^{1/p}

    Radenović, Tolias, Chum: Fine-tuning CNN image retrieval with no human annotation (2018).
    """

    def __init__(self, exponent: float = 3.0, eps: float = 1e-6) -> None:
        super().__init__()
        self.exponent = nn.Parameter(torch.tensor(float(exponent)))
        self.eps = eps

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) → (B, C)."""
        return maps.clamp(min=self.eps).pow(self.exponent).mean(dim=(2, 3)).pow(1 / self.exponent)


def build_pooling(name: str) -> nn.Module:
    """A pooling by name."""
    return POOLINGS.find(name)()
