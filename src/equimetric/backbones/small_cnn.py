"""A convolutional network for small images that trains in seconds on one core."""

import torch
from torch import Tensor, nn

from equimetric.backbones.backbone import MapBackbone, Stage
from equimetric.backbones.conventions import InputConvention
from equimetric.backbones.registry import backbone

__all__ = ["SmallCNN"]

GRID = 4
"""Rows and columns of the pooled map; images of 32×32 reach it without further pooling."""

LAYERS_PER_BLOCK = 4


class GridPooling(nn.Module):
    """Every cell of a 4×4 map as features of its own; maps of another size are averaged to 4×4."""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) → (B, 16 C)."""
        if maps.shape[2:] != (GRID, GRID):
            maps = nn.functional.adaptive_avg_pool2d(maps, GRID)
        return maps.flatten(1)


@backbone("small_cnn", num_features=1792, size=32)
class SmallCNN(MapBackbone):
    """Three convolutions for small images; trains in seconds on one core.

    Each is followed by 2×2 max pooling, batch normalisation and ReLU; the last maps are pooled to a 4×4 grid. Pooling
    before normalisation quarters the work of all later layers; a grid instead of one mean keeps the layout of a shape,
    which separates characters. With a 64-dimensional head and grey images: 152,080 parameters.
    """

    def __init__(self, channels: int, widths: tuple[int, ...] = (16, 32, 112)) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for in_channels, width in zip((channels, *widths), widths, strict=False):
            blocks += [
                nn.Conv2d(in_channels, width, kernel_size=3, padding=1, bias=False),
                nn.MaxPool2d(2, ceil_mode=True),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
        self.blocks = nn.Sequential(*blocks)
        self.stage_outputs = {f"block{n}": Stage(width, 2**n) for n, width in enumerate(widths, start=1)}
        self.pooling = GridPooling()
        self.map_channels = widths[-1]
        self.num_features = self.map_channels * GRID**2
        self.convention = InputConvention(32, 32, mean=(127.5,) * channels, std=(127.5,) * channels)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def prepare_input(self, images: Tensor) -> Tensor:
        """Images in channels-last layout."""
        return images.contiguous(memory_format=torch.channels_last)

    def forward_stage(self, stage: str, maps: Tensor) -> Tensor:
        """(B, c, h, w) → (B, stage_channels, ⌈h/2⌉, ⌈w/2⌉)."""
        first = self.stages.index(stage) * LAYERS_PER_BLOCK
        for layer in range(first, first + LAYERS_PER_BLOCK):
            maps = self.blocks[layer](maps)
        return maps
