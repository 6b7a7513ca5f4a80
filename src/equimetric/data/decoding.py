"""Decode one image file to upright 8-bit pixels, or whole lists of files in threads."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from equimetric.data.image_formats import FORMATS, detect_unsupported_format
from equimetric.data.views import Resize
from equimetric.files import unreadable_reason
from equimetric.progress import track

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

__all__ = [
    "Box",
    "Decoding",
    "available_cores",
    "convert_image",
    "decode",
    "map_in_threads",
    "open_image",
]

WHITE_OF_16_BITS = 65535
EXIF_ORIENTATION = 0x0112
UPRIGHT_ORIENTATION = 1
ROTATED_ORIENTATIONS = (5, 6, 7, 8)  # EXIF orientations that swap width and height
MAX_ASPECT_RATIO = 1000
"""The longer side of an image over the shorter one, at most: resized by the shorter side it would fill the memory."""

Box: TypeAlias = tuple[float, float, float, float]
"""x, y of the upper left corner, width, height: pixels of the upright image."""

Decoding: TypeAlias = Literal["exact", "fast"]
"""Decode every pixel of a JPEG, or only as many as the resizing needs."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def decode(
    file: Path | BytesIO,
    *,
    channels: int,
    resize: Resize | None,
    box: Box | None = None,
    decoding: Decoding = "exact",
) -> "PillowImage":
    """The image of a file: upright, cropped to `box`, in 8-bit grey or RGB, over white where transparent, resized.

    With 'fast' a JPEG at least twice as large as needed is decoded at 1/2, 1/4 or 1/8 of its size, never below what
    `resize` needs; the pixels then differ slightly from those of 'exact'. A smaller one has exactly the same pixels.
    """
    from PIL import ImageOps

    with open_image(file) as opened:
        full_width = opened.width
        orientation = _orientation(opened)
        if resize is not None and decoding == "fast":
            _request_smaller_scale(opened, resize, box, rotated=orientation in ROTATED_ORIENTATIONS)
        shrunk = full_width / opened.width
        # Each of these steps would copy an image that needs no change.
        opened.load()
        image: PillowImage = opened if orientation == UPRIGHT_ORIENTATION else ImageOps.exif_transpose(opened)
        image = _to_channels(image, channels)
    if box is not None:
        image = _crop(image, box, shrunk)
    return _check_and_resize(image, resize)


def convert_image(image: "PillowImage", *, channels: int, resize: Resize | None) -> "PillowImage":
    """An image of Pillow as `decode` gives that of a file."""
    from PIL import ImageOps

    return _check_and_resize(_to_channels(ImageOps.exif_transpose(image), channels), resize)


def _to_channels(image: "PillowImage", channels: int) -> "PillowImage":
    """8-bit grey or RGB, over white where it is transparent."""
    image = _remove_alpha(_to_eight_bits(image))
    mode = "RGB" if channels == 3 else "L"
    return image if image.mode == mode else image.convert(mode)


def _check_and_resize(image: "PillowImage", resize: Resize | None) -> "PillowImage":
    if max(image.size) > MAX_ASPECT_RATIO * min(image.size):
        raise ValueError(
            f"{image.width}×{image.height} pixels: one side is more than {MAX_ASPECT_RATIO} times the other"
        )
    return image if resize is None else resize(image)


def open_image(file: Path | BytesIO) -> "PillowImage":
    """An image of one of `FORMATS` with its header read; raises ValueError or OSError for anything else."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(file, Path) and (reason := unreadable_reason(file)):
        raise ValueError(f"it {reason}")
    try:
        return Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        if name := detect_unsupported_format(file):
            raise ValueError(f"it is {name}, which is not read; convert it to JPEG or PNG") from None
        raise


def _orientation(opened: "PillowImage") -> int:
    """The EXIF orientation, 1 to 8. Most JPEGs have no such tag, and Pillow is slow to find that out."""
    if opened.format == "JPEG" and "exif" not in opened.info and "xmp" not in opened.info:
        return UPRIGHT_ORIENTATION
    return int(opened.getexif().get(EXIF_ORIENTATION, UPRIGHT_ORIENTATION))


def _request_smaller_scale(opened: "PillowImage", resize: Resize, box: Box | None, *, rotated: bool) -> None:
    """Ask the JPEG decoder for fewer pixels; other formats ignore the request."""
    needed = (resize.side, resize.side)
    if box is not None:
        width, height = reversed(opened.size) if rotated else opened.size
        upright = (math.ceil(resize.side * width / max(box[2], 1)), math.ceil(resize.side * height / max(box[3], 1)))
        needed = (upright[1], upright[0]) if rotated else upright
    opened.draft(None, needed)  # None: keep the colour mode, change only the scale


def _crop(image: "PillowImage", box: Box, shrunk: float) -> "PillowImage":
    """The part of the image inside the box, which is in pixels of the full-size image."""
    x, y, width, height = (value / shrunk for value in box)
    left, top = max(0, round(x)), max(0, round(y))
    right, bottom = min(image.width, round(x + width)), min(image.height, round(y + height))
    if right <= left or bottom <= top:
        raise ValueError(f"the bounding box {box} lies outside the image")
    return image.crop((left, top, right, bottom))


def _to_eight_bits(image: "PillowImage") -> "PillowImage":
    """Grey images of 16 bits or floating point scaled to 0..255; others unchanged.

    White is 65535 in an integer image; in a floating-point one it is 1, or 255 where a value exceeds 1.
    """
    from PIL import Image

    if not image.mode.startswith(("I", "F")):
        return image
    values: NDArray[Any] = np.asarray(image, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("it has pixels that are not finite numbers")
    white = WHITE_OF_16_BITS if image.mode.startswith("I") else (255 if values.max() > 1 else 1)
    return Image.fromarray(np.rint(np.clip(values / white, 0, 1) * 255).astype(np.uint8))


def _remove_alpha(image: "PillowImage") -> "PillowImage":
    """A transparent image over white."""
    from PIL import Image

    if not image.has_transparency_data:
        return image
    coloured = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", coloured.size, "white"), coloured)


def available_cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], *, workers: int | None = None, description: str = ""
) -> Iterator[Result]:
    """work(item) for every item, in order. Decoding and resizing release Python's lock, so threads run in parallel.

    A pool lives for one call only, so that a forked process never waits for threads it does not have.
    """
    workers = workers or available_cores()
    if workers == 1 or len(items) < 2:
        results: Iterable[Result] = map(work, items)
        yield from track(results, description, total=len(items)) if description else results
        return
    with ThreadPoolExecutor(workers) as pool:
        results = pool.map(work, items)
        yield from track(results, description, total=len(items)) if description else results
