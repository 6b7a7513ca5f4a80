"""The glyphs, drawn once for all tests into the cache that belongs to the test session; small pictures on disk."""

import numpy as np
import pytest
from PIL import Image

from equimetric.data import load_dataset


@pytest.fixture(scope="session")
def glyphs(own_cache):
    return load_dataset("glyphs")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def picture():
    """Save a picture that no two seeds share: smooth, so that it survives JPEG."""

    def save(path, seed=0, size=(24, 16), **options):
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = np.random.default_rng(seed).integers(256, size=(4, 4, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path, **options)
        return path

    return save


@pytest.fixture
def cut():
    """Truncate a file in its middle."""

    def halve(path):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])

    return halve
