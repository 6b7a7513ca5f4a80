"""The glyphs, drawn once for all tests into the cache that belongs to the test session."""

import pytest

from equimetric.data import load_dataset


@pytest.fixture(scope="session")
def glyphs(own_cache):
    return load_dataset("glyphs")
