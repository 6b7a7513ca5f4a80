"""`equimetric datasets check` and `shift`, on a miniature folder of images."""

import json
import warnings

import numpy as np
import pytest
from PIL import Image

from equimetric.data import ImageFiles, load_dataset, read_shifted_splits

CLASSES = [f"class{number}" for number in range(8)]


@pytest.fixture
def folder(tmp_path):
    """Eight classes of three smooth pictures each, no two alike."""
    for label, name in enumerate(CLASSES):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(3):
            coarse = np.random.default_rng((label, number)).integers(256, size=(4, 4, 3), dtype=np.uint8)
            picture = Image.fromarray(coarse).resize((48, 40), Image.Resampling.BICUBIC)
            picture.save(tmp_path / "pets" / name / f"{number}.png")
    return tmp_path / "pets"


@pytest.fixture
def run_file(tmp_path, folder):
    file = tmp_path / "run.toml"
    file.write_text(
        f"""
method = "contrastive"
data = {{ name = "folder", transform = "none", options = {{ root = "{folder}", size = 16 }} }}
model.dim = 4
batch = {{ classes = 2, samples = 2 }}
training = {{ steps = 2, validate_every = 1 }}
"""
    )
    return file


def test_a_clean_data_set_is_exit_code_0(equimetric, folder, run_file):
    code, out, _ = equimetric("datasets", "check", "folder", "--root", folder)
    assert code == 0
    assert out == "pets: 24 images (6 train, 6 validation, 12 test), 0 damaged files, 0 near-duplicates across parts\n"
    assert equimetric("datasets", "check", folder)[:2] == (code, out)
    code, out, _ = equimetric("datasets", "check", run_file, "--json")
    assert code == 0
    assert json.loads(out) == {"damaged": [], "skipped": [], "small_classes": {}, "near_duplicates": []}


@pytest.mark.parametrize("in_memory", ["true", "false"])
def test_copies_across_parts_are_listed_with_their_paths(equimetric, folder, in_memory):
    (folder / "class7" / "copy.png").write_bytes((folder / "class0" / "1.png").read_bytes())
    with Image.open(folder / "class1" / "0.png") as original:
        original.resize((36, 30)).save(folder / "class6" / "smaller.jpg", quality=80)
    (folder / "class7" / "twin.png").write_bytes((folder / "class7" / "0.png").read_bytes())  # in one part: allowed
    arguments = ("datasets", "check", "folder", "--root", folder, "--in_memory", in_memory)
    code, out, _ = equimetric(*arguments)
    first, second, last = out.splitlines()
    assert code == 1
    assert first == "train class0/1.png ~ test class7/copy.png: equal"
    assert second.startswith("train class1/0.png ~ test class6/smaller.jpg: ")
    assert last.endswith("0 damaged files, 2 near-duplicates across parts")
    code, out, _ = equimetric(*arguments, "--most-difference", "0", "--json")
    (pair,) = json.loads(out)["near_duplicates"]
    assert (pair["first"], pair["second"], pair["parts"]) == ("class0/1.png", "class7/copy.png", ["train", "test"])
    assert code == 1


def test_damaged_files_are_all_listed(equimetric, folder):
    damaged = [folder / name / "2.png" for name in CLASSES[:7]]
    for number, file in enumerate(damaged):
        file.write_bytes(file.read_bytes()[:60] if number % 2 else b"no image")
    code, out, _ = equimetric("datasets", "check", "folder", "--root", folder)
    assert code == 1
    listed = [line for line in out.splitlines() if line.startswith("damaged: ")]
    assert [line.removeprefix("damaged: ").partition(" (")[0] for line in listed] == [str(file) for file in damaged]


def test_damaged_files_are_listed_before_the_error_they_cause(equimetric, folder):
    for number in (1, 2):
        (folder / "class4" / f"{number}.png").write_bytes(b"no image")
    code, _, err = equimetric("datasets", "check", "folder", "--root", folder)
    first, last = err.splitlines()
    assert code == 2
    assert "2 image file(s) cannot be read" in first
    assert "class 'class4' has one image" in last


def test_what_is_left_out_is_said(equimetric, folder):
    for number in range(7):
        (folder / "class0" / f"IMG_{number}.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    (folder / "rare").mkdir()
    (folder / "rare" / "0.png").write_bytes((folder / "class7" / "2.png").read_bytes())
    code, out, _ = equimetric("datasets", "check", folder, "--min_images", "2")
    skipped, small, last = out.splitlines()
    assert code == 0
    assert skipped.startswith(f"skipped: 7 files that are not read: {folder / 'class0' / 'IMG_0.HEIC'} (HEIC is not")
    assert skipped.endswith("and 2 more")
    assert small == "left out: 1 classes with too few images: rare (1)"
    assert last.startswith("pets: 24 images")
    code, out, _ = equimetric("datasets", "check", folder, "--min_images", "2", "--json")
    found = json.loads(out)
    assert len(found["skipped"]) == 7
    assert found["small_classes"] == {"rare": 1}


def test_training_says_what_is_left_out_in_one_sentence(equimetric, folder, run_file, tmp_path):
    (folder / "class0" / "IMG.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = equimetric("train", run_file, "--folder", tmp_path / "run")
    assert code == 0
    (line,) = [line for line in err.splitlines() if "HEIC" in line]
    assert line.startswith("equimetric: warning: 1 file(s) that are no images of a known format are skipped: ")


def test_folders_are_shifted_by_their_files(equimetric, folder, tmp_path, monkeypatch):
    from equimetric.runs import shifting

    seen = []
    compute = shifting.compute_features

    def watch(dataset, *network):
        seen.append(dataset.images)
        return compute(dataset, *network)

    monkeypatch.setattr(shifting, "compute_features", watch)
    network = ("--backbone", "small_cnn", "--pretrained", "none", "--swaps", "1")
    code, _, _ = equimetric("datasets", "shift", folder, "--out", tmp_path / "shifted.json", *network)
    assert code == 0
    assert isinstance(seen[0], ImageFiles)


def test_images_without_files_are_numbered(equimetric, tmp_path):
    images = np.random.default_rng(0).integers(256, size=(16, 8, 8), dtype=np.uint8)
    images[15] = images[0]
    np.savez(tmp_path / "images.npz", images=images, labels=np.repeat(np.arange(8), 2))
    code, out, _ = equimetric("datasets", "check", "arrays", "--file", tmp_path / "images.npz")
    assert code == 1
    assert "train image 0 ~ test image 15: equal" in out


def test_shifted_splits_are_written_and_trained_on(equimetric, folder, run_file, tmp_path):
    lists = tmp_path / "shifted.json"
    network = ("--backbone", "small_cnn", "--pretrained", "none")
    code, out, _ = equimetric(
        "datasets", "shift", run_file, "--out", lists, *network, "--swaps", "2", "--step", "1", "--removals", "0"
    )
    assert code == 0
    assert "Fréchet distance" in out
    splits = read_shifted_splits(lists, load_dataset("folder", root=folder, size=16))
    assert [split.swaps for split in splits] == [0, 1, 2]
    assert splits[0].train == tuple(CLASSES[:4])
    assert splits[1].train != splits[0].train
    again = tmp_path / "again.json"
    equimetric("datasets", "shift", run_file, "--out", again, *network, "--swaps", "2", "--step", "1")
    assert again.read_bytes() == lists.read_bytes()

    split = f'{{ file = "{lists}", number = 1 }}'
    code, _, _ = equimetric("train", run_file, "--folder", tmp_path / "run", "--data.split", split)
    assert code == 0
    with np.load(tmp_path / "run" / "per_query.npz") as stored:
        tested = {CLASSES[label] for label in stored["labels"]}
    assert tested == set(splits[1].test)
    code, out, _ = equimetric("evaluate", tmp_path / "run", "--json")
    assert json.loads(out)["queries"] == 12
    code, out, _ = equimetric("datasets", "check", run_file, "--json")
    assert code == 0


def test_feature_vectors_are_shifted_as_they_are(equimetric, tmp_path):
    vectors = np.random.default_rng(0).normal(size=(32, 6)).astype(np.float32)
    np.savez(tmp_path / "space.npz", features=vectors, labels=np.repeat(np.arange(16), 2))
    arguments = (
        "--file",
        tmp_path / "space.npz",
        "--out",
        tmp_path / "shifted.json",
        "--swaps",
        "3",
        "--removals",
        "2",
    )
    code, _, _ = equimetric("datasets", "shift", "features", *arguments)
    assert code == 0
    splits = read_shifted_splits(tmp_path / "shifted.json", load_dataset("features", file=tmp_path / "space.npz"))
    assert splits[-1].removals == 2
    assert len(splits[-1].train) == len(splits[-1].test) == 6
