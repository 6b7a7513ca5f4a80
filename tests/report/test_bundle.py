"""The scripts of the figures, kept in the cache folder."""

import pytest

from equimetric.report.bundle import vega_bundle


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """The file of the bundle in a cache folder of its own."""
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path))
    vega_bundle.cache_clear()
    vega_bundle()
    yield next((tmp_path / "report").iterdir())
    vega_bundle.cache_clear()


def test_a_damaged_bundle_is_built_again(cached):
    intact = cached.read_bytes()
    changed = intact[: len(intact) // 2] + b"x" + intact[len(intact) // 2 + 1 :]
    for damaged in (b"", intact[: len(intact) // 2], changed, b"[]"):
        cached.write_bytes(damaged)
        vega_bundle.cache_clear()
        assert "vegaEmbed" in vega_bundle()
        assert cached.read_bytes() == intact


def test_the_bundle_is_read_from_the_cache(cached, monkeypatch):
    monkeypatch.setattr("vl_convert.javascript_bundle", None)
    vega_bundle.cache_clear()
    assert vega_bundle()
