"""Decode an upload to the pixels that a network takes, or raise an error with the reason."""

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from equimetric.data.decoding import open_image
from equimetric.deployment.preprocessing import Preprocessing
from equimetric.escaping import one_line
from equimetric.service.limits import Limits
from equimetric.service.problems import RefusedError

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

__all__ = ["check_header", "decode_upload"]


def decode_upload(content: bytes, preprocessing: Preprocessing, limits: Limits) -> NDArray[np.uint8]:
    """(C, S, S) pixels of an uploaded image; what is too large is refused by its header, before it is decoded."""
    if not content:
        raise RefusedError(422, "the image is empty; send the content of an image file")
    stream = BytesIO(content)
    with open_upload(stream, limits) as opened:
        check_header(opened, limits)
    stream.seek(0)
    try:
        return preprocessing.pixels(stream)
    except Exception as error:  # a damaged image can raise almost anything from inside a decoder
        raise RefusedError(422, f"the image is damaged ({describe(error)}); send another one") from None


def open_upload(stream: BytesIO, limits: Limits) -> "PillowImage":
    """The image with its header read."""
    from PIL import Image, UnidentifiedImageError

    try:
        return open_image(stream)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise RefusedError(413, describe_too_many(limits)) from None
    except UnidentifiedImageError:
        raise RefusedError(415, "this is no image that can be read here; send a JPEG, PNG, WebP, BMP or TIFF") from None
    except ValueError as error:  # a format that is known and not read
        raise RefusedError(415, f"the image cannot be read: {describe(error)}") from None
    except Exception as error:  # as above: headers can be damaged, too
        raise RefusedError(422, f"the image is damaged ({describe(error)}); send another one") from None


def check_header(opened: "PillowImage", limits: Limits) -> None:
    """Raise an error for an image of too many pixels, or of several frames."""
    if opened.width * opened.height > limits.pixels:
        raise RefusedError(413, f"{describe_too_many(limits)}, not one of {opened.width} × {opened.height}")
    # Photographs of phones may hold a second picture, such as a depth map, behind the first.
    if opened.format != "MPO" and getattr(opened, "is_animated", False):
        raise RefusedError(422, "the image has several frames; send a single one")


def describe_too_many(limits: Limits) -> str:
    """The error message for an image of too many pixels."""
    return f"the image has too many pixels; send one of at most {limits.pixels / 1e6:.4g} million"


def describe(error: Exception) -> str:
    """The reason that a decoder gives, without the address of a stream in memory."""
    reason = one_line(str(error)).partition(" <_io")[0]
    return reason or type(error).__name__
