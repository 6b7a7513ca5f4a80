"""Damaged caches: never believed, named in a warning, and made again."""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from test_damage import damages

import equimetric as em
from equimetric import file_hashes
from equimetric.data import Dataset, FileStore, Split, damaged_files, glyphs, transform
from equimetric.file_hashes import hash_files
from equimetric.runs.data import RunData
from equimetric.studies.ledger import check_data
from equimetric.training.sinks import read_mlflow_run_id

FLIPS = [12, pytest.param(300, marks=pytest.mark.slow)]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(file_hashes, "RACY_SECONDS", -1.0)
    return tmp_path / "cache"


def read_with_warnings(read):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = read()
    return found, [str(one.message) for one in caught]


def check_cache(file, flips, read, remedy, most_harmless=0.0):
    """Whatever happens to a cache, what is read stays the same; it is named unless nothing of it was read."""
    expected, intact = read(), file.read_bytes()
    silent = 0
    for what, damaged in damages(intact, flips):
        file.write_bytes(damaged)
        found, said = read_with_warnings(read)
        assert found == expected, what
        if said:
            assert all(str(file) in message and remedy in message for message in said), what
        else:
            silent += 1
        file.write_bytes(intact)
    assert silent <= most_harmless * (flips + 4)


@pytest.fixture
def pictures(tmp_path):
    paths = []
    for number in range(40):
        Image.new("L", (8, 8), number).save(tmp_path / f"{number}.png")
        paths.append(tmp_path / f"{number}.png")
    return paths


@pytest.mark.parametrize("flips", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_remembered_hashes(cache, pictures, flips):
    """Much of the database is unused space, and a row that is not found is computed again."""
    hash_files(pictures)
    remedy = "it is removed, and files are hashed again"
    check_cache(cache / "hashes.sqlite", flips, lambda: hash_files(pictures), remedy, most_harmless=0.8)


def test_a_changed_digest_is_not_believed(cache, pictures):
    """Every byte of one digest, flipped where it stands in the database."""
    expected = hash_files(pictures)
    memory = cache / "hashes.sqlite"
    intact = memory.read_bytes()
    place = intact.index(expected[7].encode())
    for byte in range(place, place + 64):
        memory.write_bytes(intact[:byte] + bytes([intact[byte] ^ 1]) + intact[byte + 1 :])
        found, said = read_with_warnings(lambda: hash_files(pictures))
        assert found == expected
        assert len(said) == 1
        assert "hashes.sqlite is damaged (a row is not what was written)" in said[0]


@pytest.mark.parametrize("flips", FLIPS)
def test_the_list_of_checked_files(cache, pictures, tmp_path, flips):
    (tmp_path / "text.png").write_text("no picture")
    store = FileStore([*pictures, tmp_path / "text.png"])
    damaged_files(store)
    (record,) = (cache / "checked").iterdir()
    # A flipped bit of the word "sha256" makes it a file of an older version, with the same content.
    check_cache(record, flips, lambda: damaged_files(store), "the image files are checked again", most_harmless=0.2)
    content = json.loads(record.read_text())
    content.pop("checksum")
    record.write_text(json.dumps(content))
    assert read_with_warnings(lambda: damaged_files(store)) == (damaged_files(store), [])


@pytest.mark.parametrize("flips", FLIPS)
def test_the_drawn_glyphs(cache, monkeypatch, flips):
    shape = (3, 32, 32)
    drawn = glyphs._Glyphs(
        glyphs.Pictures(np.zeros(shape, np.uint8), np.array([65, 65, 66]), np.array([0, 1, 0])),
        labels=np.array([0, 0, 1]),
        members=np.array([65, 66]),
        member_labels=np.array([0, 1]),
    )
    monkeypatch.setattr(glyphs, "_build", lambda _: drawn)
    em.load_dataset("glyphs")
    file = glyphs._cache_file(14)
    check_cache(file, flips, lambda: em.load_dataset("glyphs").fingerprint, "the glyphs are drawn again")


@pytest.mark.parametrize("flips", FLIPS)
def test_the_search_for_near_duplicates(cache, flips):
    images = torch.randint(0, 256, (8, 1, 4, 4), dtype=torch.uint8)
    dataset = Dataset("noise", images, torch.arange(8), tuple("abcdefgh"), {}, {})
    data = RunData(dataset, Split(torch.arange(3), torch.arange(3, 5), torch.arange(5, 8)), transform("none"))
    check_data([data])
    (file,) = (cache / "near_duplicates").iterdir()
    remedy = "the images of all parts are compared again"
    check_cache(file, flips, lambda: check_data([data]), remedy, most_harmless=0.2)


@pytest.mark.parametrize("flips", [40, pytest.param(800, marks=pytest.mark.slow)])
def test_the_run_of_mlflow(tmp_path, flips):
    from equimetric.checksums import json_document

    file = tmp_path / "mlflow_run"
    identity = "0123456789abcdef" * 2
    file.write_text(json_document({"run_id": identity}))
    intact, noticed = file.read_bytes(), 0
    for what, damaged in damages(intact, flips):
        file.write_bytes(damaged)
        found, said = read_with_warnings(lambda: read_mlflow_run_id(file))
        assert found in (identity, None), what
        assert (found is None) == (said == [f"{file} is damaged; the figures go to a new run of MLflow from here on"])
        noticed += found is None
    assert noticed >= 0.8 * (flips + 4)
    file.write_text(identity)
    assert read_mlflow_run_id(file) == identity, "as older versions wrote it"
    assert read_mlflow_run_id(tmp_path / "none") is None


def test_every_cache_is_damaged_by_some_test():
    """What the code writes below the cache folder, and which file of tests damages it."""
    covered = {
        "checked": "faults/test_damaged_caches.py",
        "glyphs": "faults/test_damaged_caches.py",
        "images": "data/test_image_files.py",
        "features": "runs/test_features.py",
        "near_duplicates": "faults/test_damaged_caches.py",
        "report": "report/test_bundle.py",
        "damaged": "",  # lists for people, which nothing reads again
    }
    source = Path(em.__file__).parent
    written = re.compile(r'cache_directory\(\) / "(\w+)"')
    assert {name for file in source.rglob("*.py") for name in written.findall(file.read_text())} == covered.keys()
    tests = Path(__file__).parents[1]
    assert all((tests / file).is_file() for file in covered.values() if file)
