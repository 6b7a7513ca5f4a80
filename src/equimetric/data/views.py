"""Views: from an image file to a square of pixels, by a fixed resizing and a crop that may be random.

The steps are separate because the first always gives the same pixels and can be cached (see `FileStore`). All random
numbers come from a generator that is seeded for each image, so the number of threads changes nothing. Resampling is
Pillow's, with anti-aliasing.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError, quote

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

__all__ = [
    "CenterCrop",
    "Crop",
    "RandomCrop",
    "RandomResizedCrop",
    "RandomStream",
    "Resize",
    "View",
    "batch_streams",
    "fit_view",
    "view_tensor",
]

ATTEMPTS = 10  # tries of RandomResizedCrop to place a crop, as in torchvision
MAX_SIDE = 16_384
DRAWS_PER_IMAGE = 4 * ATTEMPTS + 1  # area, aspect ratio and position of every try, and the flip


class RandomStream:
    """Random numbers for one image, uniform in [0, 1) and drawn in advance; a view uses no others."""

    def __init__(self, numbers: NDArray[np.float64]) -> None:
        self.numbers: Iterator[float] = iter(numbers.tolist())

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """A number from low to high."""
        return low + (high - low) * next(self.numbers)

    def randint(self, n: int) -> int:
        """A whole number from 0 to n − 1."""
        return int(n * next(self.numbers))


def batch_streams(seed: int, step: int, count: int) -> list[RandomStream]:
    """Random numbers of the first `count` images of batch `step`; those of image p do not depend on `count`."""
    return [RandomStream(row) for row in np.random.default_rng((seed, step)).random((count, DRAWS_PER_IMAGE))]


@dataclass(frozen=True)
class Resize:
    """Bring an image to `side` pixels.

    how      "shorter": the shorter side has `side` pixels, the other ⌊side·longer/shorter⌋
             "square":  both sides have `side` pixels, the aspect ratio is not kept
             "fit":     the shorter side has `side` pixels, then the centre square is cropped (bicubic, not bilinear)
    """

    side: int
    how: Literal["shorter", "square", "fit"]

    def __post_init__(self) -> None:
        _require_pixels(self.side)
        if self.how not in ("shorter", "square", "fit"):
            raise EquimetricError(f"an image is resized by 'shorter', 'square' or 'fit', not {self.how!r}")

    def __call__(self, image: "PillowImage") -> "PillowImage":
        """The resized image."""
        from PIL import Image, ImageOps

        if self.how == "fit":
            return ImageOps.fit(image, (self.side, self.side), method=Image.Resampling.BICUBIC)
        size = (self.side, self.side)
        if self.how == "shorter":
            shorter = min(image.size)
            width, height = (self.side * side // shorter for side in image.size)
            size = (width, height)
        return image if image.size == size else image.resize(size, Image.Resampling.BILINEAR)


@dataclass(frozen=True)
class CenterCrop:
    """The square of `side` pixels in the middle."""

    side: int

    def __post_init__(self) -> None:
        _require_pixels(self.side)

    def __call__(self, image: "PillowImage", rng: RandomStream | None) -> "PillowImage":  # noqa: ARG002  (as every crop)
        """The centre of the image, padded with black where it is too small."""
        left, top = round((image.width - self.side) / 2), round((image.height - self.side) / 2)
        return image.crop((left, top, left + self.side, top + self.side))


@dataclass(frozen=True)
class RandomCrop:
    """A square of `side` pixels at a uniformly random position."""

    side: int

    def __post_init__(self) -> None:
        _require_pixels(self.side)

    def __call__(self, image: "PillowImage", rng: RandomStream | None) -> "PillowImage":
        """A crop at a random position."""
        if min(image.size) < self.side:
            raise EquimetricError(
                f"a crop of {self.side} pixels does not fit into an image of {image.width}×{image.height}; "
                "resize it to at least that first"
            )
        rng = _require_rng(rng)
        left, top = rng.randint(image.width - self.side + 1), rng.randint(image.height - self.side + 1)
        return image.crop((left, top, left + self.side, top + self.side))


@dataclass(frozen=True)
class RandomResizedCrop:
    """A rectangle of random area, aspect ratio and position, resized to a square of `side` pixels.

    The area is uniform in `scale` times the image's, log(width / height) uniform between the logarithms of `ratio`. A
    rectangle that does not fit is drawn again, at most ten times; after that the largest centre crop with an aspect
    ratio inside `ratio` is used. The same as torchvision's transform of this name.
    """

    side: int
    scale: tuple[float, float]
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        _require_pixels(self.side)
        for name, (low, high) in {"scale": self.scale, "ratio": self.ratio}.items():
            if not 0 < low <= high < math.inf:
                raise EquimetricError(f"{name} must be (smallest, largest) with 0 < smallest ≤ largest")

    def __call__(self, image: "PillowImage", rng: RandomStream | None) -> "PillowImage":
        """A random crop."""
        from PIL import Image

        left, top, width, height = self.place(image.width, image.height, _require_rng(rng))
        crop = image.crop((left, top, left + width, top + height))
        return crop.resize((self.side, self.side), Image.Resampling.BILINEAR)

    def place(self, width: int, height: int, rng: RandomStream) -> tuple[int, int, int, int]:
        """left, top, width and height of the crop in an image of this size."""
        for _ in range(ATTEMPTS):
            area = width * height * rng.uniform(*self.scale)
            proportion = math.exp(rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            crop_width, crop_height = round(math.sqrt(area * proportion)), round(math.sqrt(area / proportion))
            if 0 < crop_width <= width and 0 < crop_height <= height:
                left, top = rng.randint(width - crop_width + 1), rng.randint(height - crop_height + 1)
                return left, top, crop_width, crop_height
        crop_width, crop_height = width, height
        if width / height < self.ratio[0]:
            crop_height = min(height, round(width / self.ratio[0]))
        elif width / height > self.ratio[1]:
            crop_width = min(width, round(height * self.ratio[1]))
        return (width - crop_width) // 2, (height - crop_height) // 2, crop_width, crop_height


Crop: TypeAlias = CenterCrop | RandomCrop | RandomResizedCrop


@dataclass(frozen=True)
class View:
    """A resizing (None: keep the size), a crop (None: no crop), and with `flip` a mirror image half of the time."""

    resize: Resize | None
    crop: Crop | None = None
    flip: bool = False

    def __post_init__(self) -> None:
        if self.crop is None and (self.resize is None or self.resize.how == "shorter"):
            raise EquimetricError("a view must end in a square: give it a crop, or resize by 'square' or 'fit'")
        resized_side = self.resize.side if self.resize else math.inf
        if isinstance(self.crop, CenterCrop | RandomCrop) and self.crop.side > resized_side:
            raise EquimetricError(
                f"a crop of {self.crop.side} pixels does not fit into images resized to {resized_side}"
            )

    @property
    def size(self) -> int:
        """Pixels along one side of the output."""
        if self.crop is not None:
            return self.crop.side
        assert self.resize is not None
        return self.resize.side

    @property
    def random(self) -> bool:
        """Whether the output is random."""
        return self.flip or isinstance(self.crop, RandomCrop | RandomResizedCrop)

    def finish(self, resized: "PillowImage", rng: RandomStream | None) -> NDArray[np.uint8]:
        """Crop and flip an image that is already resized → (size, size, C)."""
        from PIL import Image

        image = resized if self.crop is None else self.crop(resized, rng)
        if self.flip and _require_rng(rng).uniform() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels: NDArray[np.uint8] = np.asarray(image, dtype=np.uint8)
        return pixels.reshape(self.size, self.size, -1)


def fit_view(size: int) -> View:
    """Resize the shorter side to `size` pixels and keep the centre."""
    return View(Resize(size, "fit"))


def view_tensor(image: Tensor, view: View, rng: RandomStream | None) -> NDArray[np.uint8]:
    """Apply a view to an image in memory.   Shapes: (C, H, W) uint8 → (size, size, C)."""
    pixels = pillow_image(np.ascontiguousarray(image.permute(1, 2, 0).numpy()))
    return view.finish(pixels if view.resize is None else view.resize(pixels), rng)


def pillow_image(pixels: NDArray[np.uint8]) -> "PillowImage":
    """(H, W, 1 or 3) as a Pillow image."""
    from PIL import Image

    if pixels.shape[2] not in (1, 3):
        raise EquimetricError(f"a view needs images of 1 or 3 channels, not {pixels.shape[2]}")
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def _require_pixels(side: int) -> None:
    if not isinstance(side, int) or isinstance(side, bool) or not 1 <= side <= MAX_SIDE:
        raise EquimetricError(
            f"size must be a whole number of pixels, at least 1 and at most {MAX_SIDE:,}, not {quote(side)}"
        )


def _require_rng(rng: RandomStream | None) -> RandomStream:
    if rng is None:
        raise EquimetricError("this view is random; use a Loader, or give `rng`")
    return rng
