import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from equimetric.data import (
    Dataset,
    cache_directory,
    content_fingerprint,
    dataset_descriptions,
    load_dataset,
)
from equimetric.errors import EquimetricError


def small_dataset(**changes):
    images = torch.arange(5 * 3 * 4 * 4).remainder(256).to(torch.uint8).reshape(5, 3, 4, 4)
    labels = torch.tensor([0, 0, 1, 2, 2])
    fields = {
        "name": "small",
        "images": images,
        "labels": labels,
        "class_names": ("ant", "bee", "cow"),
        "class_attributes": {"legs": ("6", "6", "4")},
        "sample_attributes": {"file": ("a", "b", "c", "d", "e")},
    }
    return Dataset(**(fields | changes))


def test_properties():
    dataset = small_dataset()
    assert (len(dataset), dataset.channels, dataset.size, dataset.classes) == (5, 3, 4, 3)
    assert "5 images of 3×4×4, 3 classes" in repr(dataset)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample_attributes": {"part": ("train", "tset", "test", "test", "test")}}, "'tset'; did you mean 'test'"),
        ({"images": torch.zeros(5, 3, 4, 4)}, r"must be uint8 .* not float32 of shape \(5, 3, 4, 4\)"),
        ({"images": torch.zeros(5, 4, 4, dtype=torch.uint8)}, r"not uint8 of shape \(5, 4, 4\)"),
        ({"images": torch.zeros(5, 1, 4, 6, dtype=torch.uint8)}, r"\(N, channels, size, size\)"),
        ({"images": torch.zeros(0, 1, 4, 4, dtype=torch.uint8)}, "has no images"),
        ({"labels": torch.zeros(5)}, "labels of data set 'small' must be int64"),
        ({"labels": torch.tensor([0, 1, 2])}, "5 images but 3 labels"),
        ({"labels": torch.tensor([0, 1, 2, 3, 3])}, "run from 0 to 3, but its 3 class names allow 0 to 2"),
        ({"labels": torch.tensor([0, 1, -1, 2, 2])}, "run from -1 to 2"),
        ({"labels": torch.tensor([0, 0, 2, 2, 2])}, "class 'bee' of data set 'small' has no image"),
        ({"class_attributes": {"legs": ("6",)}}, "class attribute 'legs' has 1 values; it needs 3, one per class"),
        ({"sample_attributes": {"file": ()}}, "sample attribute 'file' has 0 values; it needs 5, one per sample"),
    ],
)
def test_wrong_fields_are_explained(changes, message):
    with pytest.raises(EquimetricError, match=message):
        small_dataset(**changes)


def test_fingerprint_follows_content_and_shape():
    dataset = small_dataset()
    brighter = dataset.images.clone()
    brighter[0, 0, 0, 0] += 1
    other_labels = torch.tensor([0, 0, 1, 1, 2])
    reshaped = dataset.images.reshape(5, 12, 2, 2)
    prints = {
        small_dataset(images=images, labels=labels).fingerprint
        for images, labels in [
            (dataset.images, dataset.labels),
            (brighter, dataset.labels),
            (dataset.images, other_labels),
            (reshaped, dataset.labels),
        ]
    }
    assert len(prints) == 4
    copied = dataset.replace(images=dataset.images.clone(), labels=dataset.labels.clone(), name="other")
    assert copied.fingerprint == content_fingerprint(copied) == dataset.fingerprint


def test_subset_renumbers_classes_in_order():
    part = small_dataset().subset(torch.tensor([4, 0, 3]))
    assert part.class_names == ("ant", "cow")
    assert part.class_attributes == {"legs": ("6", "4")}
    assert part.sample_attributes == {"file": ("e", "a", "d")}
    assert part.labels.tolist() == [1, 0, 1]
    assert torch.equal(part.images, small_dataset().images[[4, 0, 3]])
    assert part.fingerprint == content_fingerprint(part) != small_dataset().fingerprint


def test_subset_of_consecutive_images_shares_memory():
    dataset = small_dataset()
    assert dataset.subset(torch.tensor([2, 3, 4])).images.data_ptr() == dataset.images[2].data_ptr()
    assert dataset.subset(torch.tensor([4, 3, 2])).sample_attributes["file"] == ("e", "d", "c")
    assert torch.equal(dataset.subset(torch.tensor([-2, -1])).images, dataset.images[3:])


def test_parts_of_the_official_split():
    official = small_dataset(sample_attributes={"part": ("train", "train", "query", "gallery", "gallery")})
    assert official.part("train").tolist() == [0, 1]
    assert official.part("query", "gallery").tolist() == [2, 3, 4]
    assert official.subset(torch.tensor([4, 0])).sample_attributes["part"] == ("gallery", "train")
    assert small_dataset().part("train").tolist() == [0, 1, 2, 3, 4]


def test_empty_subset_is_refused():
    with pytest.raises(EquimetricError, match="at least one image"):
        small_dataset().subset(torch.tensor([], dtype=torch.int64))


def test_a_dataset_is_frozen():
    with pytest.raises(AttributeError):
        small_dataset().name = "other"
    assert replace(small_dataset(), name="other").name == "other"


def test_descriptions_name_every_option():
    found = {record.name: record for record in dataset_descriptions()}
    assert set(found) == {
        *("digits", "folder", "glyphs", "manifest", "arrays", "features", "pairs", "huggingface"),
        *("cub", "cars", "online_products", "in_shop", "inaturalist", "omniglot"),
    }
    assert found["glyphs"].options == {"minimum_faces": 14}
    assert found["folder"].required == ("root",)
    assert found["folder"].options == {
        **{"size": 64, "channels": 3, "damaged": "refuse", "min_images": 1},
        **{"in_memory": True, "cache": "none", "decoding": "exact"},
    }
    assert found["cub"].options["accept_counts"] is False
    assert found["digits"].options == {}
    assert all(record.description and "\n" not in record.description for record in found.values())


def test_data_sets_and_descriptions_are_read_without_torch():
    code = (
        "import sys; from equimetric.registry import read_declarations\n"
        "for found in read_declarations('equimetric.data', 'dataset'): print(found.name, found.summary, sep='|')\n"
        "assert 'torch' not in sys.modules"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    declared = dict(line.split("|") for line in printed.splitlines())
    assert declared == {record.name: record.description.rstrip(".") for record in dataset_descriptions()}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("glyfs", {}, "unknown data set 'glyfs'; did you mean 'glyphs'?"),
        ("glyphs", {"minimum_face": 14}, "unknown option of data set 'glyphs' 'minimum_face'; did you mean 'minimum_f"),
        ("folder", {"rot": "x"}, "did you mean 'root'"),
        ("folder", {}, "data set 'folder' needs the option 'root'"),
        ("digits", {"size": 8}, "unknown option of data set 'digits' 'size'; there are none"),
    ],
)
def test_misspelt_names_and_options(name, options, message):
    with pytest.raises(EquimetricError) as caught:
        load_dataset(name, **options)
    assert message in str(caught.value)


def test_cache_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "here"))
    assert cache_directory() == tmp_path / "here"
    monkeypatch.delenv("EQUIMETRIC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "equimetric" in cache_directory().parts


def test_digits():
    digits = load_dataset("digits")
    assert digits.images.shape == (1797, 1, 8, 8)
    assert (int(digits.images.min()), int(digits.images.max())) == (0, 255)
    assert digits.class_names == tuple("0123456789")
    # the first image of the source: its first row is 0 0 5 13 9 1 0 0 of 16
    assert digits.images[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]
    assert digits.labels[:10].tolist() == list(range(10))
