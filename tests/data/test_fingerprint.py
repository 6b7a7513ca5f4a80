"""Identity is content: whatever input of a data set changes, its fingerprint changes, and nothing else changes it."""

import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from equimetric import file_hashes
from equimetric.data import (
    CenterCrop,
    Dataset,
    FileStore,
    ImageFiles,
    Resize,
    View,
    fit_view,
    load_dataset,
    split_dataset,
)

PIXELS = torch.arange(6 * 3 * 4 * 4).remainder(251).to(torch.uint8).reshape(6, 3, 4, 4)
FIELDS = {
    "name": "small",
    "images": PIXELS,
    "labels": torch.tensor([0, 0, 1, 1, 2, 2]),
    "class_names": ("ant", "bee", "cow"),
    "class_attributes": {"legs": ("6", "6", "4")},
    "sample_attributes": {"part": ("train",) * 4 + ("test",) * 2, "camera": tuple("uvwxyz"), "file": tuple("abcdef")},
}


def brighter(images):
    images = images.clone()
    images[3, 1, 2, 0] += 1
    return images


CHANGES = {
    "a pixel": {"images": brighter(PIXELS)},
    "the shape": {"images": PIXELS.reshape(6, 12, 2, 2)},
    "features in place of pixels": {"images": PIXELS.flatten(1).float()},
    "a label": {"labels": torch.tensor([0, 0, 1, 2, 2, 2])},
    "a class name": {"class_names": ("ant", "bee", "cat")},
    "the order of classes": {"class_names": ("bee", "ant", "cow")},
    "a class attribute": {"class_attributes": {"legs": ("6", "6", "5")}},
    "no class attribute": {"class_attributes": {}},
    "train and test": {"sample_attributes": {**FIELDS["sample_attributes"], "part": ("test",) * 4 + ("train",) * 2}},
    "no official split": {"sample_attributes": {"camera": tuple("uvwxyz")}},
    "a sample attribute": {"sample_attributes": {**FIELDS["sample_attributes"], "camera": tuple("uvwxyy")}},
}


def test_every_field_of_a_data_set_in_memory_counts():
    prints = {what: Dataset(**FIELDS | change).fingerprint for what, change in {"": {}, **CHANGES}.items()}
    assert len(set(prints.values())) == len(prints)


def test_names_of_the_data_set_and_its_files_do_not_count():
    same = Dataset(**FIELDS)
    named = {"name": "other", "sample_attributes": {**FIELDS["sample_attributes"], "file": tuple("ABCDEF")}}
    assert Dataset(**FIELDS | named).fingerprint == same.fingerprint
    assert same.replace(images=PIXELS.clone()).fingerprint == same.fingerprint


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_replacing_a_field_renews_the_fingerprint(change):
    assert Dataset(**FIELDS).replace(**change).fingerprint == Dataset(**FIELDS | change).fingerprint


def test_subsets_of_equal_content_are_equal():
    dataset = Dataset(**FIELDS)
    doubled = dataset.subset(torch.tensor([0, 1, 2, 3, 4, 5, 0, 1, 2, 3]))
    assert dataset.subset(torch.arange(4)).fingerprint == doubled.subset(torch.arange(6, 10)).fingerprint
    assert dataset.subset(torch.arange(4)).fingerprint != dataset.subset(torch.tensor([1, 0, 2, 3])).fingerprint


@pytest.mark.parametrize("kind", ["arrays", "features"])
def test_swapping_train_and_test_in_a_file_of_arrays(tmp_path, kind):
    values = PIXELS.numpy() if kind == "arrays" else PIXELS.flatten(1).float().numpy()
    arrays = {"images" if kind == "arrays" else "features": values, "labels": np.repeat(np.arange(3), 2)}

    def load(**changes):
        np.savez(tmp_path / "data.npz", **arrays | changes)
        return load_dataset(kind, file=tmp_path / "data.npz").fingerprint

    parts = np.array(["train"] * 4 + ["test"] * 2)
    swapped = np.array(["test"] * 4 + ["train"] * 2)
    names = np.repeat(["x", "y", "z"], 2)
    prints = [load(), load(split=parts), load(split=swapped), load(split=parts, labels=names)]
    assert len(set(prints)) == 4
    assert load(split=parts) == prints[1]


# -- images in files


@pytest.fixture
def pictures(tmp_path, cache, picture):
    """Uncompressed pictures, so that all files have the same size."""
    for number in range(6):
        picture(tmp_path / "images" / "abc"[number // 2] / f"{number}.bmp", seed=number)
    return tmp_path / "images"


@pytest.fixture
def remembered(monkeypatch):
    """Young files are remembered too; gives the files whose content has been read."""
    monkeypatch.setattr(file_hashes, "RACY_SECONDS", -1.0)
    read, hashing = [], file_hashes._read_hash
    monkeypatch.setattr(file_hashes, "_read_hash", lambda path: read.append(path.name) or hashing(path))
    return read


def folder(root, **options):
    return load_dataset("folder", root=root, **{"in_memory": False, "size": 8, **options})


def manifest(root, rows, header="path,label,split,x,y,w,h"):
    (root / "list.csv").write_text("\n".join([header, *rows]))
    return load_dataset("manifest", file=root / "list.csv", size=8).fingerprint


def replace_keeping_size_and_mtime(old, new):
    before = old.stat()
    shutil.copyfile(new, old)
    os.utime(old, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (old.stat().st_size, old.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize("in_memory", [True, False])
def test_an_image_replaced_by_one_of_equal_size_and_time(pictures, picture, remembered, in_memory):
    first = folder(pictures, in_memory=in_memory)
    other = picture(pictures.parent / "other.bmp", seed=99)
    replace_keeping_size_and_mtime(pictures / "b" / "2.bmp", other)
    changed = folder(pictures, in_memory=in_memory)
    assert changed.fingerprint != first.fingerprint


def test_unchanged_files_are_read_once(pictures, remembered):
    first = folder(pictures)
    assert len(remembered) == 6
    again = folder(pictures)
    again.subset(torch.arange(4))
    again.with_view(View(Resize(12, "shorter"), CenterCrop(6)))
    assert len(remembered) == 6
    assert again.fingerprint == first.fingerprint


def test_place_and_names_of_files_do_not_count(pictures, tmp_path):
    first = folder(pictures).fingerprint
    shutil.copytree(pictures, tmp_path / "moved" / "images")
    assert folder(tmp_path / "moved" / "images").fingerprint == first
    (pictures / "a" / "0.bmp").rename(pictures / "a" / "00.bmp")
    assert folder(pictures).fingerprint == first
    (pictures / "a").rename(pictures / "aa")
    assert folder(pictures).fingerprint != first, "a class has another name"


def test_options_of_decoding_count(pictures):
    options = [{}, {"size": 9}, {"channels": 1}, {"decoding": "fast"}]
    prints = [folder(pictures, **chosen).fingerprint for chosen in options]
    view = View(Resize(12, "shorter"), CenterCrop(8))
    prints.append(folder(pictures).with_view(view).fingerprint)
    assert len(set(prints)) == len(prints)
    assert folder(pictures, cache="disk").fingerprint == prints[0], "where pixels are kept changes nothing"


def test_every_column_of_a_manifest_counts(pictures):
    rows = [f"{'abc'[n // 2]}/{n}.bmp,{'xyz'[n // 2]},{'train' if n < 4 else 'test'},0,0,8,8" for n in range(6)]
    changes = {
        "as it is": rows,
        "order": rows[::-1],
        "another image": [rows[0].replace("a/0", "a/1"), *rows[1:]],
        "another label": [rows[0].replace(",x,", ",y,"), *rows[1:]],
        "another class name": [row.replace(",x,", ",v,") for row in rows],
        "another box": [rows[0].replace("0,0,8,8", "1,0,8,8"), *rows[1:]],
        "no box": [rows[0].replace("0,0,8,8", ",,,"), *rows[1:]],
        "parts swapped": [row.replace("train", "T").replace("test", "train").replace("T", "test") for row in rows],
    }
    prints = {what: manifest(pictures, changed) for what, changed in changes.items()}
    assert len(set(prints.values())) == len(prints)
    assert manifest(pictures, rows) == prints["as it is"]


def test_subsets_of_files_are_cheap_and_equal_where_their_content_is(pictures, remembered):
    dataset = folder(pictures)
    remembered.clear()
    first = dataset.subset(torch.tensor([2, 3])).fingerprint
    doubled = dataset.subset(torch.tensor([0, 1, 2, 3, 2, 3]))
    assert doubled.subset(torch.tensor([4, 5])).fingerprint == first
    assert dataset.subset(torch.tensor([3, 2])).fingerprint != first
    assert remembered == []


def test_the_disk_cache_follows_content(pictures, picture, cache, remembered):
    files = sorted(pictures.glob("*/*.bmp"))
    first = ImageFiles.all_of(FileStore(files, cache="disk"), fit_view(8))[0:6]
    replace_keeping_size_and_mtime(files[0], picture(pictures.parent / "other.bmp", seed=99))
    changed = ImageFiles.all_of(FileStore(files, cache="disk"), fit_view(8))[0:6]
    assert torch.equal(changed, ImageFiles.all_of(FileStore(files), fit_view(8))[0:6])
    assert not torch.equal(changed[0], first[0])
    copies = [shutil.copy(file, cache.parent / file.name) for file in files]
    ImageFiles.all_of(FileStore(copies, cache="disk"), fit_view(8))[0:6]
    assert len(list((cache / "images").iterdir())) == 2, "copies share the cache"


def test_a_remembered_check_names_the_files_at_hand(pictures, tmp_path):
    (pictures / "a" / "1.bmp").write_text("no picture")
    with pytest.warns(UserWarning, match="cannot be read"):
        first = load_dataset("manifest", file=write_list(pictures), size=8, damaged="skip")
    shutil.copytree(pictures, tmp_path / "moved")
    with pytest.warns(UserWarning, match="cannot be read"):
        moved = load_dataset("manifest", file=tmp_path / "moved" / "list.csv", size=8, damaged="skip")
    assert first.unreadable[0].startswith(str(pictures))
    assert moved.unreadable[0].startswith(str(tmp_path / "moved"))
    assert moved.fingerprint == first.fingerprint


def write_list(root):
    rows = [f"{'abc'[n // 2]}/{n}.bmp,{'xyz'[n // 2]}" for n in range(6)]
    (root / "list.csv").write_text("\n".join(["path,label", *rows]))
    return root / "list.csv"


def test_images_of_the_test_part_are_part_of_the_identity_of_a_split(pictures):
    rows = [f"{'abc'[n // 2]}/{n}.bmp,{'uvwxyz'[n]},{'train' if n < 4 else 'test'},,,," for n in range(6)]
    (pictures / "list.csv").write_text("\n".join(["path,label,split,x,y,w,h", *rows]))
    dataset = load_dataset("manifest", file=pictures / "list.csv", size=8)
    split = split_dataset(dataset)
    parts = {name: dataset.subset(indices).fingerprint for name, indices in split.parts().items()}
    assert len(set(parts.values())) == 3
    Image.new("RGB", (24, 16), "teal").save(pictures / "c" / "5.bmp")
    again = load_dataset("manifest", file=pictures / "list.csv", size=8)
    renewed = {name: again.subset(indices).fingerprint for name, indices in split.parts().items()}
    assert [name for name in parts if renewed[name] != parts[name]] == ["test"]
