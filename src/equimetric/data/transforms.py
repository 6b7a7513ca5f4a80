"""From stored bytes to what a network sees, and the random changes of it that each protocol trains with."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from equimetric.data.views import CentreCrop, RandomCrop, RandomResizedCrop, Resize, View
from equimetric.errors import EquimetricError, unknown_name

__all__ = [
    "TRANSFORMS",
    "Augmentation",
    "RandomAffine",
    "Transform",
    "prepare",
    "transform",
    "unchanged",
]

Augmentation: TypeAlias = Callable[[Tensor, Generator], Tensor]


def prepare(images: Tensor) -> Tensor:
    """uint8 in 0..255 to float32 in [−1, 1]:  x / 127.5 − 1.   Shapes: any, kept.

    Feature vectors (N, D) in floating point, as the data set 'features' holds them, are returned as they are.
    """
    if images.is_floating_point() and images.ndim == 2:
        return images
    if images.dtype != torch.uint8:
        raise EquimetricError(f"prepare expects uint8 images as a Dataset holds them, not {images.dtype}")
    return images.to(torch.float32) / 127.5 - 1


@dataclass(frozen=True)
class RandomAffine:
    """Turn, scale, shear and shift every image of a batch by its own random amounts, each uniform in its range.

    A pixel at p (in pixels from the centre) moves to  p' = s·R(angle)·H(shear)·p + t,  with R a rotation,
    H = [[1, tan shear], [0, 1]], and t up to `translate` times the width and height. Bilinear sampling; what comes in
    from outside repeats the border pixels, so a plain background stays plain and no value leaves its image's range.
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
        """(N, 2, 3): where each output position is read from, in coordinates that run from −1 to 1 along each side.

        The inverse of the motion:  p = A⁻¹ (p' − t),  A = s·R·H.  In those coordinates x is measured in half widths and
        y in half heights, hence A is conjugated with D = diag(width, height); only their ratio `aspect` matters.
        """
        drawn = torch.rand(count, 5, generator=generator, device=generator.device) * 2 - 1
        angle, size, shear, shift_x, shift_y = drawn.unbind(1)
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


def unchanged(images: Tensor, generator: Generator) -> Tensor:  # noqa: ARG001  (the signature of every augmentation)
    """No augmentation: the images as they are."""
    return images


@dataclass(frozen=True)
class Transform:
    """What a protocol does to an image file for training and for the test, and to a prepared batch in training.

    Where the views are None, images are taken as the data set gives them.
    """

    name: str
    description: str
    train: View | None = None
    test: View | None = None
    augment: Augmentation = unchanged


_SHORTER_256 = Resize(256, "shorter")
_SQUARE_256 = Resize(256, "square")

TRANSFORMS: dict[str, Transform] = {
    entry.name: entry
    for entry in (
        Transform("none", "images as the data set gives them"),
        Transform("affine", "small turns, scalings, shears and shifts (`RandomAffine`)", augment=RandomAffine()),
        Transform(
            "reality_check",
            "Musgrave, Belongie, Lim (2020), as released: 16 to 100 % of the area of a 256-pixel image, at 227 pixels",
            train=View(_SHORTER_256, RandomResizedCrop(227, scale=(0.16, 1.0)), flip=True),
            test=View(_SHORTER_256, CentreCrop(227)),
        ),
        Transform(
            "reality_check_slides",
            "the same as the authors' slides tell it: crops of 40 to 256 pixels of a 256-pixel image, at 227 pixels",
            train=View(_SHORTER_256, RandomResizedCrop(227, scale=((40 / 256) ** 2, 1.0)), flip=True),
            test=View(_SHORTER_256, CentreCrop(227)),
        ),
        Transform(
            "unbiased",
            "Fehérvári, Ravichandran, Appalaraju (2019): 256×256 whatever the proportions, random crop of 224 pixels",
            train=View(_SQUARE_256, RandomCrop(224), flip=True),
            test=View(_SQUARE_256, CentreCrop(224)),
        ),
        Transform(
            "unified_view",
            "A unified view of deep metric learning via gradient analysis: 256×256, random crop of 227 pixels",
            train=View(_SQUARE_256, RandomCrop(227), flip=True),
            test=View(_SQUARE_256, CentreCrop(227)),
        ),
        Transform(
            "imagenet",
            "8 to 100 % of the area of the whole image at 224 pixels, as in the code of Proxy-Anchor and SoftTriple",
            train=View(None, RandomResizedCrop(224, scale=(0.08, 1.0)), flip=True),
            test=View(_SHORTER_256, CentreCrop(224)),
        ),
    )
}


def transform(name: str) -> Transform:
    """The transform of that name, one of `TRANSFORMS`."""
    if name not in TRANSFORMS:
        raise unknown_name("transform", name, TRANSFORMS)
    return TRANSFORMS[name]
