"""Small pictures of gallery items."""

from io import BytesIO
from pathlib import Path

from equimetric.data.decoding import convert_image, open_image
from equimetric.errors import EquimetricError
from equimetric.service.limits import Limits
from equimetric.service.problems import RefusedError
from equimetric.service.uploads import check_header

__all__ = ["make_thumbnail"]

SIDE = 256
"""Side of the square that a thumbnail fits into, in pixels."""
QUALITY = 80


def make_thumbnail(file: Path, limits: Limits) -> bytes:
    """An image file as a small JPEG, upright, and without its metadata."""
    try:
        with open_image(file) as opened:
            check_header(opened, limits)
            opened.draft("RGB", (SIDE, SIDE))
            picture = convert_image(opened, channels=3, resize=None)
    except (RefusedError, EquimetricError):
        raise
    except Exception:  # a damaged file can raise almost anything from inside a decoder
        raise RefusedError(404, "the image of this item can no longer be read; only its vector is here") from None
    picture.thumbnail((SIDE, SIDE))
    stream = BytesIO()
    picture.save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()
