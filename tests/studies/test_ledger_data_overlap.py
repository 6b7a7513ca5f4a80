"""Classes and images in two parts of the data, found once and remembered."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from equimetric.data import Dataset, Split, transform
from equimetric.errors import EquimetricError
from equimetric.runs.configuration import DataConfig
from equimetric.runs.data import RunData, load_run_data
from equimetric.studies.ledger import check_data, data_overlap
from equimetric.studies.ledger.record import Ledger, waive

ROWS = torch.arange(32)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "near_duplicates"


@pytest.fixture
def searches(monkeypatch):
    """How many images were looked at."""
    counted = []
    thumbnails = data_overlap.grey_thumbnails
    monkeypatch.setattr(
        data_overlap, "grey_thumbnails", lambda images: counted.append(len(images)) or thumbnails(images)
    )
    return counted


def data_of(images, split=None):
    names = tuple(f"class {label}" for label in range(8))
    dataset = Dataset("noise", images, torch.arange(8).repeat_interleave(4), names, {}, {})
    return RunData(dataset, split or Split(ROWS[:12], ROWS[12:20], ROWS[20:]), transform("none"))


@pytest.fixture
def images():
    return torch.randint(0, 256, (32, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def refusal(folds, **waivers):
    entries, _ = waive(check_data(folds), waivers)
    ledger = Ledger(title="study", entries=tuple(entries))
    with pytest.raises(EquimetricError) as refused:
        ledger.raise_unfair()
    return str(refused.value)


def test_clean_data_are_fair(images):
    classes, near = check_data([data_of(images)])
    assert (classes.status, near.status) == ("met", "met")
    assert classes.finding == "3 train, 2 validation, 3 test classes, none in two parts"
    assert near.finding == "none among 32 images (at most 6 of 64 bits and 8 of 255 apart)"


def test_overlapping_classes_are_refused(images):
    overlapping = data_of(images, Split(ROWS[:14], ROWS[14:20], ROWS[18:]))
    message = refusal([data_of(images), overlapping])
    assert "shared classes (1 classes are in train and in validation: class 3)" in message
    assert "put every class into one of the training, validation and test parts" in message


def test_an_official_split_with_overlapping_classes_is_not_even_loaded(tmp_path, images):
    split = np.where(np.arange(32) % 2, "train", "test")
    np.savez(tmp_path / "a.npz", images=images.permute(0, 2, 3, 1).numpy(), labels=np.arange(32) // 4, split=split)
    with pytest.raises(EquimetricError, match="is in train and in test; parts must share no class"):
        load_run_data(DataConfig(name="arrays", options={"file": str(tmp_path / "a.npz")}))


def test_near_duplicates_are_refused(images):
    images[25] = (images[3].int() + 2).clamp(max=255).to(torch.uint8)
    images[14] = images[30]
    message = refusal([data_of(images)])
    assert "near-duplicates (2 pairs in two parts, 1 of them equal (at most 6 of 64 bits and 8 of 255 apart)" in message
    assert "such as validation image 14 ~ test image 30: equal; train image 3 ~ test image 25: " in message
    assert "`equimetric datasets check` lists them" in message


def test_waived_near_duplicates_are_printed(images):
    images[25] = images[3]
    entries, _ = waive(check_data([data_of(images)]), {"near_duplicates": "the shop reuses photographs"})
    ledger = Ledger(title="study", entries=tuple(entries))
    ledger.raise_unfair()
    (line,) = ledger.footnotes()
    assert line.startswith("Waived: near-duplicates (1 pairs in two parts, 1 of them equal")
    assert line.endswith(": the shop reuses photographs.")


def test_equal_feature_vectors_are_refused():
    vectors = torch.rand(32, 5)
    assert check_data([data_of(vectors)])[1].finding == "none among 32 images (equal feature vectors)"
    vectors[31] = vectors[0]
    assert "such as train vector 0 = test vector 31" in refusal([data_of(vectors)])


def test_a_search_is_remembered_by_content_and_split(images, cache, searches):
    data = data_of(images)
    found = check_data([data])
    assert searches == [32]
    assert check_data([data_of(images.clone())]) == found
    assert searches == [32]
    other_fold = replace(data, split=Split(ROWS[8:20], ROWS[:8], ROWS[20:]))
    check_data([data, other_fold, replace(data, split=Split(ROWS[4:20], ROWS[:4], ROWS[20:]))])
    assert searches == [32, 32]  # both new folds share one look at the images
    assert len(list(cache.iterdir())) == 3
    images[25] = images[3]
    assert check_data([data_of(images)])[1].status == "violated"
    assert searches == [32, 32, 32]


@pytest.mark.parametrize("content", ["", "{}", '{"pairs": -1}', "[1]", '{"checksum": "sha256:0"}'])
def test_a_damaged_memory_is_searched_again(images, cache, searches, content):
    found = check_data([data_of(images)])
    (file,) = cache.iterdir()
    file.write_text(content)
    with pytest.warns(UserWarning, match="is damaged; the images of all parts are compared again"):
        assert check_data([data_of(images)]) == found
    assert searches == [32, 32]
    assert json.loads(file.read_text())["pairs"] == 0


def test_a_cache_that_cannot_be_written_costs_time_alone(images, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "file"))
    assert check_data([data_of(images)])[1].status == "met"


def test_a_data_set_of_equal_images_ends_soon(images):
    (near,) = (entry for entry in check_data([data_of(torch.zeros_like(images))]) if entry.factor == "near_duplicates")
    assert near.finding.startswith("336 pairs in two parts, 336 of them equal")
