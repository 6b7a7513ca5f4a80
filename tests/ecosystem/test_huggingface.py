"""Data sets of Hugging Face as a source of images and of vectors."""

import numpy as np
import pytest
import torch
from PIL import Image

import equimetric as em
from equimetric.data import from_huggingface
from equimetric.errors import EquimetricError

datasets = pytest.importorskip("datasets")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def pictures(classes=8, each=5, size=12):
    """Squares of one grey with noise; the class is the grey."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    pixels = (labels[:, None, None] * 30 + random.integers(0, 9, (len(labels), size, size))).astype(np.uint8)
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=[f"grey {one}" for one in range(classes)])}
    )
    rows = {"image": [Image.fromarray(one) for one in pixels], "label": labels.tolist()}
    return datasets.Dataset.from_dict(rows, features=features), pixels


def test_images_and_names_of_classes():
    data, pixels = pictures()
    found = from_huggingface(data, size=12, channels=1)
    assert found.class_names == tuple(f"grey {one}" for one in range(8))
    assert torch.equal(found.images[:, 0], torch.from_numpy(pixels))
    assert from_huggingface(data, size=6).images.shape == (40, 3, 6, 6)


def test_a_run_is_trained_from_a_folder(tmp_path):
    data, _ = pictures()
    data.save_to_disk(tmp_path / "greys")
    config = {
        "method": "contrastive",
        "data": {"name": "huggingface", "options": {"root": str(tmp_path / "greys"), "size": 16, "channels": 1}},
        "batch": {"classes": 2, "samples": 2},
        "training": {"steps": 2, "validate_every": 2},
    }
    model = em.train(config, folder=tmp_path / "run")
    assert model.metrics["recall@1"] >= 0
    images = em.datasets.huggingface(root=tmp_path / "greys", size=16, channels=1).images
    assert model.embed(images[:2]).shape == (2, 64)


def test_vectors_and_texts_as_labels():
    rows = {"embedding": np.eye(6).tolist(), "kind": list("abcabc")}
    data = datasets.Dataset.from_dict(rows)
    found = from_huggingface(data, column="embedding", label="kind")
    assert found.images.dtype == torch.float32
    assert torch.equal(found.images, torch.eye(6))
    assert found.class_names == ("a", "b", "c")


def test_official_splits(tmp_path):
    data, _ = pictures()
    parts = datasets.DatasetDict({"train": data.select(range(30)), "test": data.select(range(30, 40))})
    parts.save_to_disk(tmp_path / "parts")
    kept = em.load_dataset("huggingface", root=tmp_path / "parts", size=12, channels=1, official=True)
    assert kept.part("test").tolist() == list(range(30, 40))
    pooled = em.load_dataset("huggingface", root=tmp_path / "parts", size=12, channels=1)
    assert "part" not in pooled.sample_attributes
    assert torch.equal(pooled.images, kept.images)


def test_what_is_no_data_set_raises_an_error(tmp_path):
    data, _ = pictures()
    for column, label, match in (
        ("picture", "label", "image"),
        ("image", "labels", "label"),
        ("label", "label", "int"),
    ):
        with pytest.raises(EquimetricError, match=match):
            from_huggingface(data, column=column, label=label)
    with pytest.raises(EquimetricError, match="rename it"):
        from_huggingface(datasets.DatasetDict({"held": data}), official=True)
    ragged = datasets.Dataset.from_dict({"v": [[1.0], [1.0, 2.0]], "label": [0, 1]})
    with pytest.raises(EquimetricError, match="one length"):
        from_huggingface(ragged, column="v")
    for nothing in ("mnist", {"train": "mnist"}, None, [1, 2]):
        with pytest.raises(EquimetricError, match=r"is no Dataset or DatasetDict; give what datasets\.load_dataset"):
            from_huggingface(nothing)
    for stream in (data.to_iterable_dataset(), datasets.IterableDatasetDict({"train": data.to_iterable_dataset()})):
        with pytest.raises(EquimetricError, match="IterableDataset is a stream of rows; load the data set without"):
            from_huggingface(stream)
    with pytest.raises(EquimetricError, match="save_to_disk"):
        em.load_dataset("huggingface", root=tmp_path / "nothing")
    with pytest.raises(EquimetricError, match="save_to_disk"):
        em.load_dataset("huggingface", root=tmp_path)


def test_the_rows_of_a_data_set_in_a_loop_of_torch():
    data, _ = pictures()
    sampler = em.batches.class_balanced(torch.tensor(data["label"][:]), classes_per_batch=4, samples_per_class=3)
    loader = torch.utils.data.DataLoader(data.with_format("torch"), batch_sampler=sampler)
    objective = em.losses.contrastive()
    for batch in loader:
        embeddings = batch["image"].float().flatten(1)
        assert objective(embeddings, batch["label"]).isfinite()
