from importlib import import_module

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from equimetric.data import Dataset, FileStore, ImageFiles, Split, fit_view, near_duplicates
from equimetric.data.near_duplicates import difference_hashes
from equimetric.errors import EquimetricError


def dataset(images):
    count = len(images)
    return Dataset("pictures", images, torch.arange(count), tuple(map(str, range(count))), {}, {}, "0")


module = import_module("equimetric.data.near_duplicates")
"""Its name in the package is that of the function."""

SPLIT = Split(torch.tensor([0, 1, 2]), torch.tensor([3, 4]), torch.tensor([5, 6, 7]))


@pytest.fixture
def files(tmp_path, picture):
    """Eight pictures; 5 is a copy of 0, 3 a smaller and brighter JPEG of 1, 7 a copy of 6 in the same part."""
    paths = [picture(tmp_path / f"{n}.png", seed=n, size=(120, 90)) for n in range(8)]
    paths[5].write_bytes(paths[0].read_bytes())
    paths[7].write_bytes(paths[6].read_bytes())
    paths[3] = tmp_path / "3.jpg"
    with Image.open(paths[1]) as original:
        ImageEnhance.Brightness(original.resize((60, 45))).enhance(1.04).save(paths[3], quality=60)
    return ImageFiles.all_of(FileStore(paths), fit_view(64))


@pytest.mark.parametrize("kind", ["files", "tensor"])
def test_copies_in_other_parts_are_found(files, kind):
    found = near_duplicates(dataset(files if kind == "files" else files[0:8]), SPLIT)
    assert [(pair.first, pair.second, pair.parts, pair.exact) for pair in found] == [
        (0, 5, ("train", "test"), True),
        (1, 3, ("train", "validation"), False),
    ]
    assert (found[0].bits, found[0].difference) == (0, 0.0)
    assert 0 < found[1].difference < 8


def test_without_a_split_all_images_are_compared_once_and_named_by_class(files):
    found = near_duplicates(dataset(files))
    assert [(pair.first, pair.second, pair.parts) for pair in found] == [
        (0, 5, ("0", "5")),
        (6, 7, ("6", "7")),
        (1, 3, ("1", "3")),
    ]
    assert len(near_duplicates(dataset(files), most_bits=64, most_difference=255)) == 8 * 7 // 2


def test_stricter_and_looser_limits(files):
    pictures = dataset(files)
    assert [pair.first for pair in near_duplicates(pictures, SPLIT, most_difference=0)] == [0]
    assert len(near_duplicates(pictures, SPLIT, most_bits=64, most_difference=255)) == 3 * 2 + 3 * 3 + 2 * 3
    assert len(near_duplicates(pictures, SPLIT, most_bits=64, most_difference=255, limit=4)) == 4


def test_the_hash_has_a_bit_for_every_step_to_the_right():
    rising = torch.arange(32, dtype=torch.uint8).expand(32, 32)
    falling = rising.flip(1)
    half = torch.cat([rising[:16], falling[16:]])
    hashes = difference_hashes(torch.stack([rising, falling, half]))
    assert np.bitwise_count(hashes).tolist() == [64, 0, 32]


def test_what_cannot_be_compared():
    features = Dataset("vectors", torch.rand(2, 3), torch.tensor([0, 1]), ("a", "b"), {}, {}, "0")
    with pytest.raises(EquimetricError, match="holds feature vectors"):
        near_duplicates(features, SPLIT)
    with pytest.raises(EquimetricError, match="most_bits must be from 0 to 64"):
        near_duplicates(dataset(torch.zeros(8, 1, 4, 4, dtype=torch.uint8)), SPLIT, most_bits=65)


def test_blocks_change_nothing(files, monkeypatch):
    pictures = dataset(files)
    whole = near_duplicates(pictures, SPLIT, most_bits=30, most_difference=60)
    assert len(whole) > 3
    thumbnails = module.grey_thumbnails(pictures.images)
    for name in ("ROW_CHUNK_SIZE", "COLUMN_CHUNK_SIZE", "PAIR_CHUNK_SIZE"):
        monkeypatch.setattr(module, name, 1)
    assert near_duplicates(pictures, SPLIT, most_bits=30, most_difference=60, thumbnails=thumbnails) == whole
