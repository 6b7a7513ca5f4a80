"""BN-Inception, the backbone of most metric learning papers until 2021."""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from equimetric.backbones.backbone import MapBackbone, Stage
from equimetric.backbones.conventions import InputConvention
from equimetric.backbones.registry import backbone
from equimetric.errors import EquimetricError

__all__ = ["BNInception"]


class Block(NamedTuple):
    """Widths of one inception block; without `single` and `projected` it halves the map and keeps its input."""

    single: int | None
    """1×1"""
    triple: tuple[int, int]
    """1×1 → 3×3"""
    double: tuple[int, int]
    """1×1 → 3×3 → 3×3, both of the second width"""
    projected: int | None
    """3×3 pooling → 1×1"""
    pooling: Literal["avg", "max"] = "avg"

    @property
    def stride(self) -> int:
        """2 where the block halves the map."""
        return 1 if self.single else 2

    def out_channels(self, in_channels: int) -> int:
        """Channels of the concatenated branches."""
        return (self.single or 0) + self.triple[1] + self.double[1] + (self.projected or in_channels)


BLOCKS = {
    "3a": Block(64, (64, 64), (64, 96), 32),
    "3b": Block(64, (64, 96), (64, 96), 64),
    "3c": Block(None, (128, 160), (64, 96), None),
    "4a": Block(224, (64, 96), (96, 128), 128),
    "4b": Block(192, (96, 128), (96, 128), 128),
    "4c": Block(160, (128, 160), (128, 160), 128),
    "4d": Block(96, (128, 192), (160, 192), 128),
    "4e": Block(None, (128, 192), (192, 256), None),
    "5a": Block(352, (192, 320), (160, 224), 128),
    "5b": Block(352, (192, 320), (192, 224), 128, "max"),
}


class BNInception(MapBackbone):
    """Inception with batch normalisation.   Ioffe, Szegedy: Batch normalization (2015); 10,270,240 parameters.

    Layers have the names of the widely used public weight file, a port of the Caffe model: every convolution `name` is
    followed by its normalisation `name_bn` and a ReLU. Some ports copy Caffe's momentum of 0.9, which in PyTorch would
    take nine tenths of the statistics from the last batch; here it is PyTorch's 0.1.
    """

    map_channels = num_features = 1024
    convention = InputConvention(224, 256, mean=(104.0, 117.0, 128.0), std=(1.0, 1.0, 1.0), order="bgr")

    def __init__(self) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", 3, 64, kernel_size=7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64)
        self._add("conv2_3x3", 64, 192, kernel_size=3)
        in_channels, stride = 192, 8
        self.stage_outputs = {"pool1_3x3_s2": Stage(64, 4), "pool2_3x3_s2": Stage(in_channels, stride)}
        for name, block in BLOCKS.items():
            prefix = f"inception_{name}"
            if block.single:
                self._add(f"{prefix}_1x1", in_channels, block.single)
            reduced, width = block.triple
            self._add(f"{prefix}_3x3_reduce", in_channels, reduced)
            self._add(f"{prefix}_3x3", reduced, width, kernel_size=3, stride=block.stride)
            reduced, width = block.double
            self._add(f"{prefix}_double_3x3_reduce", in_channels, reduced)
            self._add(f"{prefix}_double_3x3_1", reduced, width, kernel_size=3)
            self._add(f"{prefix}_double_3x3_2", width, width, kernel_size=3, stride=block.stride)
            if block.projected:
                self._add(f"{prefix}_pool_proj", in_channels, block.projected)
            in_channels, stride = block.out_channels(in_channels), stride * block.stride
            self.stage_outputs[prefix] = Stage(in_channels, stride)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _add(self, name: str, in_channels: int, out_channels: int, kernel_size: int = 1, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding=kernel_size // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(out_channels))

    def _convolve(self, maps: Tensor, *names: str) -> Tensor:
        for name in names:
            maps = F.relu(self.get_submodule(f"{name}_bn")(self.get_submodule(name)(maps)), inplace=True)
        return maps

    def _inception(self, maps: Tensor, name: str) -> Tensor:
        """The branches 1×1, 3×3, double 3×3 and pooling of one block, side by side."""
        block, prefix = BLOCKS[name], f"inception_{name}"
        branches = [self._convolve(maps, f"{prefix}_1x1")] if block.single else []
        branches += [
            self._convolve(maps, f"{prefix}_3x3_reduce", f"{prefix}_3x3"),
            self._convolve(maps, *(f"{prefix}_double_3x3_{part}" for part in ("reduce", "1", "2"))),
        ]
        if not block.projected:
            branches.append(F.max_pool2d(maps, 3, stride=2, ceil_mode=True))
        else:
            pool = F.avg_pool2d if block.pooling == "avg" else F.max_pool2d
            branches.append(self._convolve(pool(maps, 3, stride=1, padding=1), f"{prefix}_pool_proj"))
        return torch.cat(branches, dim=1)

    def prepare_input(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) in channels-last layout, for sides H from 32h − 1 to 32h + 6; so 224 and 227 give 7×7 maps.

        For other sizes the convolutions and the pooling that halve a map, which pad differently, disagree on its size.
        """
        if any((side + 1) % 32 > 7 or side < 31 for side in images.shape[2:]):
            raise EquimetricError(
                f"BN-Inception cannot take images of {images.shape[2]}×{images.shape[3]} pixels: a side must be from "
                "1 below to 6 above a multiple of 32, as 224 and 227 are"
            )
        return images.contiguous(memory_format=torch.channels_last)

    def forward_stage(self, stage: str, maps: Tensor) -> Tensor:
        """A convolution of the stem with the pooling after it, or an inception block."""
        if stage == "pool1_3x3_s2":
            return F.max_pool2d(self._convolve(maps, "conv1_7x7_s2"), 3, stride=2, ceil_mode=True)
        if stage == "pool2_3x3_s2":
            maps = self._convolve(maps, "conv2_3x3_reduce", "conv2_3x3")
            return F.max_pool2d(maps, 3, stride=2, ceil_mode=True)
        return self._inception(maps, stage.removeprefix("inception_"))

    @staticmethod
    def public_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights of a public file under the names here: no classifier, statistics of shape (C,) instead of (1, C)."""
        return {
            name: value.squeeze(0) if "_bn." in name and value.ndim == 2 else value
            for name, value in weights.items()
            if not name.startswith(("last_linear.", "fc."))
        }


@backbone(
    "bn_inception",
    num_features=1024,
    size=224,
    translate=BNInception.public_names,
    public_file="bn_inception-52deb4733.pth",
)
def bn_inception(channels: int) -> BNInception:  # noqa: ARG001
    """BN-Inception (Ioffe, Szegedy 2015), 10.3 million parameters, the backbone of most papers until 2021."""
    return BNInception()
