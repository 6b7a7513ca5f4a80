"""Preprocess an image into the pixels that a deployed network takes: decoded, upright, resized, cropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from equimetric.data import CenterCrop, ImageFiles, Images, Resize, View, fit_view
from equimetric.data.decoding import Decoding, convert_image, decode
from equimetric.data.views import pillow_image
from equimetric.errors import EquimetricError
from equimetric.runs.data import RunData
from equimetric.runs.origin import describe_view

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

__all__ = ["ImageLike", "Preprocessing", "list_images"]

ImageLike: TypeAlias = "str | Path | BytesIO | PillowImage | NDArray[np.uint8] | Tensor"
"""A file, its content as a stream, an image of Pillow, or bytes: an array (H, W) or (H, W, C), a tensor (C, H, W)."""

COLOUR_MODES = {1: "grey", 3: "RGB"}


@dataclass(frozen=True)
class Preprocessing:
    """Everything between a file and the network, in the order in which the run's own test images passed it.

    channels  3 for colour, 1 for grey
    views     resizing and crop; two where the data set had resized the images before the run's transform
    decoding  'exact', or 'fast' for large JPEGs
    crops_to_boxes  whether images were cropped to bounding boxes first; a caller has to do the same

    Scaling of the pixels to the network's input is part of the network.
    """

    channels: int
    views: tuple[View, ...]
    decoding: Decoding = "exact"
    crops_to_boxes: bool = False

    @classmethod
    def from_data(cls, data: RunData, decoding: Decoding = "exact") -> Preprocessing:
        """The preprocessing of a run's test images."""
        images: Images = data.dataset.images
        if isinstance(images, ImageFiles):
            view = images.view if data.transform.test is None else data.transform.test
            return cls(images.store.channels, (view,), images.store.decoding, images.store.boxes is not None)
        transform_views = () if data.transform.test is None else (data.transform.test,)
        # Images of this size pass `fit` unchanged.
        return cls(data.dataset.channels, (fit_view(data.dataset.size), *transform_views), decoding)

    @property
    def size(self) -> int:
        """Pixels along one side of the output."""
        return self.views[-1].size

    @property
    def description(self) -> str:
        """The preprocessing in words; different preprocessings have different descriptions."""
        box = ["cropped to its bounding box"] if self.crops_to_boxes else []
        decoded = "upright (EXIF)" + ("" if self.decoding == "exact" else ", large JPEGs decoded at a smaller scale")
        steps = [decoded, *box, COLOUR_MODES[self.channels], *(describe_view(view) for view in self.views)]
        return ", ".join(steps)

    def pixels(self, image: ImageLike) -> NDArray[np.uint8]:
        """One image → (C, S, S)."""
        first, *later_views = self.views
        if isinstance(image, str | Path | BytesIO):
            file = Path(image) if isinstance(image, str) else image
            opened = decode(file, channels=self.channels, resize=first.resize, decoding=self.decoding)
        else:
            opened = convert_image(as_pillow(image), channels=self.channels, resize=first.resize)
        pixels = first.finish(opened, None)
        for view in later_views:
            intermediate = pillow_image(pixels)
            pixels = view.finish(intermediate if view.resize is None else view.resize(intermediate), None)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))

    def to_dict(self) -> dict[str, Any]:
        """In plain types."""
        steps = [
            {
                "resize": None if view.resize is None else asdict(view.resize),
                "centre_crop": None if view.crop is None else view.crop.side,
            }
            for view in self.views
        ]
        return {
            "description": self.description,
            "channels": self.channels,
            "size": self.size,
            "exif_orientation": True,
            "transparent_over": "white",
            "bounding_box": self.crops_to_boxes,
            "decoding": self.decoding,
            "steps": steps,
            "layout": "uint8, NCHW; scaling, mean and standard deviation are inside the network",
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Preprocessing:
        """The inverse of `to_dict`."""
        views = tuple(
            View(
                None if step["resize"] is None else Resize(step["resize"]["side"], step["resize"]["how"]),
                None if step["centre_crop"] is None else CenterCrop(step["centre_crop"]),
            )
            for step in document["steps"]
        )
        if not views or document["channels"] not in COLOUR_MODES or document["decoding"] not in ("exact", "fast"):
            raise ValueError("it has no steps, or unknown channels or decoding")
        return cls(document["channels"], views, document["decoding"], bool(document["bounding_box"]))


def as_pillow(image: Any) -> PillowImage:
    """An array or tensor of bytes as a Pillow image; a Pillow image unchanged."""
    from PIL import Image

    if isinstance(image, Image.Image):
        return image
    if isinstance(image, Tensor):
        image = image.movedim(0, -1).cpu().numpy() if image.ndim == 3 else image.cpu().numpy()
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim not in (2, 3):
        raise EquimetricError(
            "an image is a path, an image of Pillow, a uint8 array (H, W) or (H, W, C), or a uint8 tensor (C, H, W), "
            f"not {describe_value(image)}; convert it"
        )
    return pillow_image(np.ascontiguousarray(image[:, :, None] if image.ndim == 2 else image))


def describe_value(image: Any) -> str:
    """Type of a value, with dtype and shape where it has them."""
    shape = getattr(image, "shape", None)
    return type(image).__name__ if shape is None else f"{image.dtype} of shape {tuple(shape)}"


def list_images(images: ImageLike | Iterable[ImageLike]) -> Sequence[ImageLike]:
    """One image or several as a sequence; arrays (N, H, W, C) and tensors (N, C, H, W) are several."""
    from PIL import Image

    if isinstance(images, str | Path | BytesIO | Image.Image):
        return [images]
    if isinstance(images, np.ndarray | Tensor):
        return list(images) if images.ndim == 4 else [images]
    return list(images)
