"""A convolutional network for small images that trains in seconds on one core."""

import torch
from torch import Tensor, nn

from equimetric.backbones.backbone import MapBackbone
from equimetric.backbones.conventions import InputConvention

__all__ = ["SmallCNN"]

PLACES = 4
"""Rows and columns of the last map; images of 32×32 arrive there without further pooling."""


class PlacesKept(nn.Module):
    """Every place of a 4×4 map as features of its own; maps of another size are averaged down to it."""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) → (B, 16 C)."""
        if maps.shape[2:] != (PLACES, PLACES):
            maps = nn.functional.adaptive_avg_pool2d(maps, PLACES)
        return maps.flatten(1)


class SmallCNN(MapBackbone):
    """Three blocks of convolution, 2×2 max pooling, batch normalisation and ReLU, pooled to 4×4 places.

    Pooling before normalisation quarters the work of everything after it; keeping 4×4 places instead of one keeps
    the layout of a shape, which tells characters apart. With a 64-dimensional head and grey images: 152,080 parameters.
    """

    def __init__(self, channels: int, widths: tuple[int, ...] = (16, 32, 112)) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for before, width in zip((channels, *widths), widths, strict=False):
            blocks += [
                nn.Conv2d(before, width, kernel_size=3, padding=1, bias=False),
                nn.MaxPool2d(2, ceil_mode=True),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
        self.blocks = nn.Sequential(*blocks)
        self.pooling = PlacesKept()
        self.maps = widths[-1]
        self.features = self.maps * PLACES**2
        self.convention = InputConvention(32, 32, mean=(127.5,) * channels, std=(127.5,) * channels)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward_maps(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) → (B, maps, ⌈H/8⌉, ⌈W/8⌉)."""
        maps: Tensor = self.blocks(images.contiguous(memory_format=torch.channels_last))
        return maps
