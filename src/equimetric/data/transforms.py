"""From stored bytes to network input, and the views and augmentations of each protocol."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from equimetric.data.views import CenterCrop, RandomCrop, RandomResizedCrop, Resize, View
from equimetric.errors import EquimetricError
from equimetric.registry import Registry

__all__ = [
    "TRANSFORMS",
    "Augmentation",
    "RandomAffine",
    "Transform",
    "identity",
    "image_transform",
    "prepare",
    "transform",
]

Augmentation: TypeAlias = Callable[[Tensor, Generator], Tensor]


def prepare(images: Tensor) -> Tensor:
    """uint8 in 0..255 to float32 in [−1, 1]:  x / 127.5 − 1.   Shapes: any, kept.

    Feature vectors (N, D) in floating point, as in the data set 'features', are returned unchanged.
    """
    if images.is_floating_point() and images.ndim == 2:
        return images
    if images.dtype != torch.uint8:
        raise EquimetricError(f"prepare expects uint8 images as a Dataset holds them, not {images.dtype}")
    return images.to(torch.float32) / 127.5 - 1


@dataclass(frozen=True)
class RandomAffine:
    """Rotate, scale, shear and shift every image of a batch by random amounts of its own, each uniform in its range.

    A pixel at p (in pixels from the centre) moves to  p' = s·R(angle)·H(shear)·p + t,  with R a rotation,
    H = [[1, tan shear], [0, 1]], and t up to `translate` times the width and height. Bilinear sampling; border pixels
    are repeated outside the image, so a plain background stays plain and values stay in the image's range.
    """

    degrees: float = 10.0
    scale: tuple[float, float] = (0.9, 1.1)
    translate: float = 0.08
    shear: float = 5.0

    def __post_init__(self) -> None:
        if not 0 <= self.degrees <= 180:
            raise EquimetricError(f"degrees must be from 0 to 180, not {self.degrees}")
        if not 0 < self.scale[0] <= self.scale[1] < math.inf:
            raise EquimetricError(f"scale must be (smallest, largest) with 0 < smallest ≤ largest, not {self.scale}")
        if not 0 <= self.translate <= 1:
            raise EquimetricError(f"translate must be from 0 to 1 times the image side, not {self.translate}")
        if not 0 <= self.shear < 90:
            raise EquimetricError(f"shear must be from 0 to below 90 degrees, not {self.shear}")

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Distort a batch.   Shapes: images (N, C, H, W) floating point → the same."""
        if images.ndim != 4 or not images.is_floating_point():
            raise EquimetricError(
                f"RandomAffine expects floating-point images of shape (N, C, H, W), as `prepare` makes them, "
                f"not {images.dtype} of shape {tuple(images.shape)}"
            )
        source = self._source_positions(len(images), images.shape[3] / images.shape[2], generator)
        source = source.to(device=images.device, dtype=images.dtype)
        grid = F.affine_grid(source, list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)

    def _source_positions(self, count: int, aspect: float, generator: Generator) -> Tensor:
        """(N, 2, 3): the source of each output position, in coordinates from −1 to 1 along each side.

        The inverse of the motion:  p = A⁻¹ (p' − t),  A = s·R·H.  In these coordinates x is in half widths and y in
        half heights, so A is conjugated with D = diag(width, height); only their ratio `aspect` matters.
        """
        parameters = torch.rand(count, 5, generator=generator, device=generator.device) * 2 - 1
        angle, size, shear, shift_x, shift_y = parameters.unbind(1)
        angle = torch.deg2rad(angle * self.degrees)
        slant = torch.tan(torch.deg2rad(shear * self.shear))
        smallest, largest = self.scale
        size = (smallest + largest) / 2 + size * (largest - smallest) / 2
        cosine, sine = torch.cos(angle) / size, torch.sin(angle) / size
        # H⁻¹ R⁻¹ / s, row by row
        inverse = torch.stack(
            [
                torch.stack([cosine + slant * sine, (sine - slant * cosine) * (1 / aspect)], dim=1),
                torch.stack([-sine * aspect, cosine], dim=1),
            ],
            dim=1,
        )
        # a shift of one side is a distance of 2 between −1 and 1
        shift = 2 * self.translate * torch.stack([shift_x, shift_y], dim=1).unsqueeze(2)
        return torch.cat([inverse, -inverse @ shift], dim=2)


def identity(images: Tensor, generator: Generator) -> Tensor:  # noqa: ARG001  (the signature of every augmentation)
    """No augmentation."""
    return images


@dataclass(frozen=True)
class Transform:
    """The views of a protocol for training and test images, and the augmentation of a prepared training batch.

    Where a view is None, images are used as the data set gives them.
    """

    name: str = ""
    description: str = ""
    train: View | None = None
    test: View | None = None
    augment: Augmentation = identity
    enlarges: bool = False
    """Whether it is meant for images that are smaller than its views."""


TRANSFORMS: Registry[Transform] = Registry("transform", "equimetric.data")


def transform(name: str) -> Transform:
    """The transform of that name, one of `TRANSFORMS`."""
    return TRANSFORMS.find(name)


def image_transform(name: str) -> Callable[[Callable[[], Transform]], Callable[[], Transform]]:
    """Register the transform that a function returns; the first line of its docstring is the description."""

    def decorate(build: Callable[[], Transform]) -> Callable[[], Transform]:
        description = (inspect.getdoc(build) or "").partition("\n")[0].rstrip(".")
        TRANSFORMS.add(name, replace(build(), name=name, description=description), module=build.__module__)
        return build

    return decorate


@image_transform("none")
def no_transform() -> Transform:
    """Images as the data set gives them."""
    return Transform()


@image_transform("affine")
def affine() -> Transform:
    """Small rotations, scalings, shears and shifts (`RandomAffine`)."""
    return Transform(augment=RandomAffine())


_SHORTER_256 = Resize(256, "shorter")
_SQUARE_256 = Resize(256, "square")


@image_transform("reality_check")
def reality_check() -> Transform:
    """Musgrave, Belongie, Lim (2020), as released: 16 to 100 % of the area of a 256-pixel image, at 227 pixels."""
    train = View(_SHORTER_256, RandomResizedCrop(227, scale=(0.16, 1.0)), flip=True)
    return Transform(train=train, test=View(_SHORTER_256, CenterCrop(227)))


@image_transform("reality_check_slides")
def reality_check_slides() -> Transform:
    """The same as in the authors' slides: crops of 40 to 256 pixels of a 256-pixel image, at 227 pixels."""
    train = View(_SHORTER_256, RandomResizedCrop(227, scale=((40 / 256) ** 2, 1.0)), flip=True)
    return Transform(train=train, test=View(_SHORTER_256, CenterCrop(227)))


@image_transform("unbiased")
def unbiased() -> Transform:
    """Fehérvári, Ravichandran, Appalaraju (2019): 256×256 whatever the aspect ratio, random crop of 224 pixels."""
    train = View(_SQUARE_256, RandomCrop(224), flip=True)
    return Transform(train=train, test=View(_SQUARE_256, CenterCrop(224)))


@image_transform("unified_view")
def unified_view() -> Transform:
    """A unified view of deep metric learning via gradient analysis: 256×256, random crop of 227 pixels."""
    train = View(_SQUARE_256, RandomCrop(227), flip=True)
    return Transform(train=train, test=View(_SQUARE_256, CenterCrop(227)))


@image_transform("imagenet")
def imagenet() -> Transform:
    """8 to 100 % of the area of the whole image at 224 pixels, as in the code of Proxy-Anchor and SoftTriple."""
    train = View(None, RandomResizedCrop(224, scale=(0.08, 1.0)), flip=True)
    return Transform(train=train, test=View(_SHORTER_256, CenterCrop(224)))


@image_transform("enlarge")
def enlarge() -> Transform:
    """Small images enlarged to 128 pixels for a pretrained network; small rotations, scalings, shears and shifts."""
    view = View(Resize(128, "square"), CenterCrop(128))
    return Transform(train=view, test=view, augment=RandomAffine(), enlarges=True)
