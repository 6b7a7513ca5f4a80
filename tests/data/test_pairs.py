"""Items of two modalities in one file."""

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from equimetric.data import Dataset, load_dataset
from equimetric.errors import EquimetricError

GENERATOR = np.random.default_rng(0)
ARRAYS = {
    "image": GENERATOR.standard_normal((4, 3)),
    "text": GENERATOR.standard_normal((4, 2)).astype(np.float16),
    "labels": np.array([1, 1, 0, 0]),
}


def saved(tmp_path, **arrays):
    stored = {name: array for name, array in {**ARRAYS, **arrays}.items() if array is not None}
    np.savez(tmp_path / "pairs.npz", **stored)
    return tmp_path / "pairs.npz"


def test_modalities_stand_side_by_side(tmp_path):
    split = np.array(["train", "train", "test", "test"])
    pairs = load_dataset("pairs", file=saved(tmp_path, split=split, item=np.array([7, 7, 8, 9])))
    expected = np.concatenate([ARRAYS["image"], ARRAYS["text"]], axis=1).astype(np.float32)
    assert torch.equal(pairs.images, torch.from_numpy(expected))
    assert pairs.modalities == {"image": 3, "text": 2}
    assert pairs.sample_attributes == {"item": ("7", "7", "8", "9"), "part": tuple(split)}
    assert pairs.subset(torch.tensor([0, 2])).modalities == {"image": 3, "text": 2}


def test_names_of_arrays_and_safetensors(tmp_path):
    stored = {"sketch": ARRAYS["image"], "photo": ARRAYS["text"].astype(np.float32), "labels": ARRAYS["labels"]}
    save_file(stored, tmp_path / "pairs.safetensors")
    pairs = load_dataset("pairs", file=tmp_path / "pairs.safetensors", first="sketch", second="photo")
    assert pairs.modalities == {"sketch": 3, "photo": 2}


def test_where_one_modality_ends_is_part_of_the_content(tmp_path):
    pairs = load_dataset("pairs", file=saved(tmp_path))
    moved = pairs.replace(modalities={"image": 2, "text": 3})
    assert len({pairs.fingerprint, moved.fingerprint, pairs.replace(modalities={}).fingerprint}) == 3
    with pytest.raises(EquimetricError, match="must share the dimensions of its feature vectors"):
        pairs.replace(modalities={"image": 2, "text": 2})
    images = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    with pytest.raises(EquimetricError, match="must share the dimensions"):
        Dataset("x", images, torch.tensor([0, 1]), ("a", "b"), {}, {}, modalities={"image": 1})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"text": ARRAYS["text"][:3]}, "'image' has 4 rows and 'text' 3 in .*; give both the same number"),
        ({"text": None}, "has no array 'text'"),
        ({"labels": None}, "has no array 'labels'"),
        ({"text": ARRAYS["text"][:, 0]}, r"the 'text' in .* must be numbers of shape \(N, D\)"),
        ({"image": np.full((4, 3), np.nan)}, "the 'image' in .* have values that are not finite"),
        ({"item": np.arange(3)}, "'item' in .* must be 4 integers or texts, one per row"),
        ({"labels": np.arange(3)}, "must be 4 integers or texts, one per image"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path, arrays, message):
    with pytest.raises(EquimetricError, match=message):
        load_dataset("pairs", file=saved(tmp_path, **arrays))


def test_bad_options_get_one_sentence(tmp_path):
    with pytest.raises(EquimetricError, match="first and second are both 'text'"):
        load_dataset("pairs", file=saved(tmp_path), first="text")
    (tmp_path / "x.safetensors").write_bytes(b"no tensors")
    with pytest.raises(EquimetricError, match=r"is not a \.safetensors file"):
        load_dataset("pairs", file=tmp_path / "x.safetensors")
    with pytest.raises(EquimetricError, match="there is no file"):
        load_dataset("pairs", file=tmp_path / "none.npz")
