"""The input that a network's weights expect: image size, channel order, normalisation."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from equimetric.errors import EquimetricError

__all__ = ["InputConvention"]


@dataclass(frozen=True)
class InputConvention:
    """The input that a set of weights was trained with; a wrong one costs accuracy and raises no error.

    It belongs to the weights, not to the architecture. `mean` and `std` are in bytes (0..255) and in the network's
    channel order, so for 'bgr' blue comes first.
    """

    size: int
    """Side of the square image."""
    resize: int
    """Length of the shorter side before the centre crop to `size`."""
    mean: tuple[float, ...] = (127.5, 127.5, 127.5)
    std: tuple[float, ...] = (127.5, 127.5, 127.5)
    order: Literal["rgb", "bgr"] = "rgb"
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    """Resampling of the resizing, with antialiasing."""

    def __post_init__(self) -> None:
        if not 0 < self.size <= self.resize:
            raise EquimetricError(f"an input convention needs 0 < size ≤ resize, not {self.size} and {self.resize}")
        if len(self.mean) != len(self.std) or not self.mean:
            raise EquimetricError(f"mean and std need one value per channel each, not {self.mean} and {self.std}")
        if min(self.std) <= 0:
            raise EquimetricError(f"std must be above 0 in every channel, not {self.std}")
        if self.order not in ("rgb", "bgr") or (self.order == "bgr" and len(self.mean) != 3):
            raise EquimetricError(f"the channel order is 'rgb', or 'bgr' of three channels, not {self.order!r}")

    @classmethod
    def of_unit_range(
        cls,
        size: int,
        resize: int,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        interpolation: Literal["bilinear", "bicubic"] = "bilinear",
    ) -> "InputConvention":
        """From a mean and standard deviation of values in 0..1, as PyTorch libraries state them."""
        in_bytes = [tuple(255 * value for value in values) for values in (mean, std)]
        return cls(size, resize, in_bytes[0], in_bytes[1], interpolation=interpolation)

    @property
    def channels(self) -> int:
        """Number of channels that the network takes."""
        return len(self.mean)

    def apply(self, images: Tensor) -> Tensor:
        """X / std − mean / std  in the network's channel order; a grey image is repeated to three channels if needed.

        Takes two passes over the batch: conversion, and one in-place multiply-add. The memory layout is kept.
        Shapes: uint8 (B, channels or 1, H, W) → float32 (B, channels, H, W).
        """
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise EquimetricError(
                f"an input convention applies to uint8 images (B, C, H, W), not {images.dtype} {tuple(images.shape)}"
            )
        if images.shape[1] not in (1, self.channels):
            raise EquimetricError(
                f"the images have {images.shape[1]} channels and the network takes {self.channels}: "
                f"convert them to {'grey' if self.channels == 1 else 'RGB'}"
            )
        if self.order == "bgr":
            images = images.flip(1)
        values = images.expand(-1, self.channels, -1, -1).to(torch.float32)
        if len(set(self.std)) == len(set(self.mean)) == 1:
            return values.div_(self.std[0]).sub_(self.mean[0] / self.std[0])
        std = torch.tensor(self.std, dtype=torch.float32, device=images.device).view(-1, 1, 1)
        offset = torch.tensor(self.mean, dtype=torch.float32, device=images.device).view(-1, 1, 1).div_(-std)
        return torch.addcdiv(offset, values, std, out=values)
