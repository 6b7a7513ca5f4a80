"""Thumbnails of a page, each image once, within a number of bytes."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray

from equimetric.studies.profiles import StudyImages

__all__ = ["Thumbnails"]

SIDE = 64
MAX_PIXELATED_SIDE = 40
"""Images up to this side are kept as they are: their pixels stay visible."""


class Thumbnails:
    """The thumbnails of rows of a data set; rows that no longer fit have none."""

    def __init__(self, images: StudyImages, byte_budget: int, side: int = SIDE) -> None:
        self.images = images
        self.byte_budget = byte_budget
        self.side = side
        self.data_urls: dict[int, str] = {}

    def add(self, *rows: int) -> bool:
        """Make thumbnails of all these rows; False, and none of them, where they do not fit or cannot be made."""
        if self.images.dataset is None:
            return False
        unknown = [row for row in dict.fromkeys(rows) if row not in self.data_urls]
        new = {row: thumbnail(self.images.image(row), self.side) for row in unknown}
        size = sum(map(len, new.values()))
        if size > self.byte_budget:
            return False
        self.byte_budget -= size
        self.data_urls |= new
        return True


def thumbnail(image: NDArray[np.uint8], side: int = SIDE) -> str:
    """An image (C, H, W) as an inline file: a photograph as JPEG, a small image as PNG."""
    from PIL import Image

    pixels = Image.fromarray(np.ascontiguousarray(image[0] if image.shape[0] == 1 else image.transpose(1, 2, 0)))
    pixels.thumbnail((side, side), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    kind = "png" if max(image.shape[1:]) <= MAX_PIXELATED_SIDE or image.shape[0] == 1 else "jpeg"
    pixels.save(stream, format=kind, optimize=True, **({"quality": 72} if kind == "jpeg" else {}))
    return f"data:image/{kind};base64," + base64.b64encode(stream.getvalue()).decode("ascii")
