"""A small served gallery, and images of every kind to send to it."""

import struct
import zlib
from contextlib import contextmanager
from io import BytesIO

import numpy as np
from PIL import Image
from starlette.testclient import TestClient

from equimetric.service.access import AccessRules
from equimetric.service.app import build_service
from equimetric.service.backend import ServedGallery
from equimetric.service.limits import Limits
from equimetric.service.metrics import ServiceMetrics

KEY = "a-key-that-is-long-enough"


@contextmanager
def serve(folder, model, *, rules=None, limits=None, thumbnails=True):
    """A client of the service of a gallery, in this process."""
    metrics = ServiceMetrics()
    served = ServedGallery(folder, model, limits or Limits(), metrics)
    app = build_service(served, rules or AccessRules(), metrics, thumbnails=thumbnails)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


def encode(pixels, format="PNG", **options):
    """An image file."""
    stream = BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(stream, format, **options)
    return stream.getvalue()


def noise(seed=0, size=(9, 12)):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def png_of_size(width, height, data=b""):
    """A PNG whose header promises a size, with this content."""

    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def animation(format, **options):
    frames = [Image.fromarray(noise(seed)) for seed in range(3)]
    return encode(frames[0], format, save_all=True, append_images=frames[1:], **options)


def phone_photo():
    """A JPEG with a second picture behind the first, as phones write."""
    first, second = (Image.fromarray(noise(seed, (40, 30))) for seed in (0, 1))
    return encode(first, "MPO", save_all=True, append_images=[second])


def send(client, path, content, *, name="image", **options):
    return client.post(path, files={name: ("photo.jpg", content, "image/jpeg")}, **options)


def is_one_sentence(response):
    """Whether a refused request is answered in the agreed form."""
    document = response.json()
    detail = document["detail"]
    return list(document) == ["detail"] and detail and "\n" not in detail and "Traceback" not in detail
