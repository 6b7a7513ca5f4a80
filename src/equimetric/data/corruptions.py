"""Five corruptions of images: noise, blur, compression, contrast, occlusion.

Strengths follow Hendrycks, Dietterich: "Benchmarking neural network robustness to common corruptions and perturbations"
(2019), from mild to severe; lengths are in parts of the shorter side, so that they suit small images, too.
"""

from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from equimetric.data.image_conditions import Pixels, image_condition
from equimetric.data.views import pillow_image

__all__ = ["add_noise", "blur", "compress", "lower_contrast", "occlude"]

GREY = 128


@image_condition("noise", kind="corruption", strengths=(0.08, 0.18, 0.35))
def add_noise(pixels: Pixels, deviation: float, random: np.random.Generator) -> Pixels:
    """Gaussian noise of a standard deviation of 8, 18 and 35 % of white."""
    return _to_bytes(pixels + 255 * deviation * random.standard_normal(pixels.shape))


@image_condition("blur", kind="corruption", strengths=(0.0125, 0.02, 0.03))
def blur(pixels: Pixels, deviation: float, random: np.random.Generator) -> Pixels:  # noqa: ARG001  (nothing random)
    """Gaussian blur with a standard deviation of 1.25, 2 and 3 % of the shorter side."""
    from PIL import ImageFilter

    radius = deviation * min(pixels.shape[:2])
    blurred = np.asarray(pillow_image(pixels).filter(ImageFilter.GaussianBlur(radius)))
    return blurred.reshape(pixels.shape)


@image_condition("jpeg", kind="corruption", strengths=(25, 12, 6))
def compress(pixels: Pixels, quality: float, random: np.random.Generator) -> Pixels:  # noqa: ARG001  (nothing random)
    """JPEG compression of quality 25, 12 and 6."""
    from PIL import Image

    buffer = BytesIO()
    pillow_image(pixels).save(buffer, "JPEG", quality=int(quality))
    with Image.open(buffer) as opened:
        return np.asarray(opened).reshape(pixels.shape)


@image_condition("contrast", kind="corruption", strengths=(0.5, 0.3, 0.15))
def lower_contrast(pixels: Pixels, factor: float, random: np.random.Generator) -> Pixels:  # noqa: ARG001
    """50, 30 and 15 % of the contrast around the mean colour."""
    mean = pixels.mean(axis=(0, 1), keepdims=True)
    return _to_bytes(mean + factor * (pixels - mean))


@image_condition("occlusion", kind="corruption", strengths=(0.1, 0.25, 0.4))
def occlude(pixels: Pixels, area: float, random: np.random.Generator) -> Pixels:
    """A grey square somewhere in the image that covers 10, 25 and 40 % of it."""
    height, width = pixels.shape[:2]
    side = min(round((area * height * width) ** 0.5), height, width)
    top, left = (int(random.random() * (length - side + 1)) for length in (height, width))
    covered = pixels.copy()
    covered[top : top + side, left : left + side] = GREY
    return covered


def _to_bytes(values: NDArray[np.float64]) -> Pixels:
    return np.asarray(np.rint(np.clip(values, 0, 255)), np.uint8)
