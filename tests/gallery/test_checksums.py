"""Changed bytes of a gallery are found, wherever they are, and nothing else is."""

import json

import numpy as np
import pytest
from gallery_cases import hard_data, verification

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.gallery import block_checksums
from equimetric.gallery.block_checksums import extend_checksums
from equimetric.gallery.manifest import Manifest

VECTORS = hard_data("random", 60, 1, 8)[1]
IDS = [f"i{number:02d}" for number in range(60)]


@pytest.fixture
def gallery(tmp_path, monkeypatch):
    """A gallery of several blocks and appends, coded at two scales, with removed rows."""
    monkeypatch.setattr(block_checksums, "BLOCK", 8)
    gallery = em.Gallery.create(tmp_path / "g", verification("euclidean"))
    for start, end in ((0, 3), (3, 4), (4, 20), (20, 41), (41, 60)):
        gallery.add((1 + start) * VECTORS[start:end], IDS[start:end])
    gallery.remove(IDS[:5])
    return gallery


def test_a_gallery_that_nobody_changed_is_whole(gallery):
    found = gallery.check()
    assert found.holds
    assert found.skipped == ()
    stored = [file for file in gallery.folder.iterdir() if file.suffix in (".f32", ".i8", ".parquet", ".npy")]
    assert found.bytes == sum(file.stat().st_size for file in stored)
    found.require()


@pytest.mark.parametrize("pattern", ["vectors.f32", "codes-*", "residuals-*", "shifts.f32", "items-*", "removed-*"])
def test_a_changed_byte_is_found_where_it_is(gallery, pattern):
    (file, *_) = gallery.folder.glob(pattern)
    content = bytearray(file.read_bytes())
    width = len(content) // 60 if file.suffix in (".f32", ".i8") else None
    place = 42 * width if width else len(content) - 8
    content[place] ^= 1
    file.write_bytes(content)
    found = gallery.check()
    if width:
        assert found.problems == (f"rows 40 to 47 of {file.name} are not what was written",)
    else:
        assert found.problems == (f"{file.name} is not what was written",)
    with pytest.raises(EquimetricError, match=rf"is damaged \(.*{file.name}.*\); restore it from a copy"):
        found.require()


def test_another_size_is_found_when_the_gallery_is_opened(gallery):
    (file, *_) = gallery.folder.glob("items-*")
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(EquimetricError, match="bytes instead of"):
        em.Gallery.open(gallery.folder)


def test_checksums_of_appends_are_those_of_the_whole(monkeypatch):
    monkeypatch.setattr(block_checksums, "BLOCK", 8)
    for cuts in ((), (1,), (8,), (7, 8, 9), (3, 30, 31), tuple(range(1, 60))):
        known, before = (), 0
        for end in (*cuts, 60):
            known = extend_checksums(known, before, VECTORS[before:end])
            before = end
        assert known == extend_checksums((), 0, VECTORS)
        assert len(known) == 8


def test_galleries_of_the_first_schema_are_read_and_say_what_cannot_be_checked(gallery):
    document = json.loads((gallery.folder / "gallery.json").read_text())
    del document["checksum"], document["checksums"]
    document["schema"] = "equimetric.gallery/1"
    for part in document["parts"]:
        del part["bytes"], part["checksum"]
    (gallery.folder / "gallery.json").write_text(json.dumps(document))
    opened = em.Gallery.open(gallery.folder)
    assert len(opened) == 55
    opened.add(VECTORS[:1], ["new"])
    found = opened.check()
    assert found.holds
    assert "vectors.f32" in found.skipped
    assert opened.save(gallery.folder.parent / "copy").check().skipped == ()


def test_a_large_gallery_has_a_short_manifest(tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", verification())
    gallery.add(np.repeat(VECTORS, 1200, axis=0), [str(number) for number in range(72_000)])
    assert len(Manifest.read(gallery.folder).checksums["vectors"]) == 2
    assert gallery.check().holds
