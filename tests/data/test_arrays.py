import numpy as np
import pytest
import torch

from equimetric.data import load_dataset, prepare, split_dataset
from equimetric.errors import EquimetricError

IMAGES = np.random.default_rng(0).integers(256, size=(4, 3, 5, 5), dtype=np.uint8)
LABELS = np.array(["b", "b", "a", "a"])
FEATURES = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float16)


def saved(tmp_path, **arrays):
    np.savez(tmp_path / "data.npz", **arrays)
    return tmp_path / "data.npz"


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (IMAGES, IMAGES),
        (IMAGES.transpose(0, 2, 3, 1), IMAGES),
        (IMAGES[:, 0], IMAGES[:, :1]),
        (IMAGES[:, :1], IMAGES[:, :1]),
    ],
)
def test_images_in_every_layout(tmp_path, stored, expected):
    arrays = load_dataset("arrays", file=saved(tmp_path, images=stored, labels=LABELS, camera=np.array(list("wxyz"))))
    assert torch.equal(arrays.images, torch.from_numpy(expected.copy()))
    assert arrays.class_names == ("a", "b")
    assert arrays.labels.tolist() == [1, 1, 0, 0]
    assert arrays.sample_attributes == {"camera": ("w", "x", "y", "z")}


def test_features_stand_for_images(tmp_path):
    file = saved(
        tmp_path, features=FEATURES, labels=np.array([5, 5, 2, 2]), split=np.array(["train"] * 2 + ["test"] * 2)
    )
    features = load_dataset("features", file=file)
    assert (features.images.shape, features.images.dtype) == ((4, 6), torch.float32)
    assert (features.channels, features.size) == (6, 1)
    assert features.class_names == ("2", "5")
    assert features.sample_attributes["part"] == ("train", "train", "test", "test")
    assert prepare(features.images) is features.images
    assert torch.equal(features.subset(torch.tensor([3, 0])).images, features.images[[3, 0]])
    with pytest.raises(EquimetricError, match="fewer than two classes to train on"):
        split_dataset(features)


def test_features_with_labels_in_another_file(tmp_path):
    np.save(tmp_path / "space.npy", FEATURES)
    with pytest.raises(EquimetricError, match=r"no file '.*space.csv' with the labels of 'space.npy'"):
        load_dataset("features", file=tmp_path / "space.npy")
    (tmp_path / "space.csv").write_text("label,split\nb,train\nb,train\na,test\na,test\n")
    beside = load_dataset("features", file=tmp_path / "space.npy")
    assert beside.labels.tolist() == [1, 1, 0, 0]
    assert beside.sample_attributes == {"part": ("train", "train", "test", "test")}
    np.save(tmp_path / "labels.npy", np.array([1, 1, 0, 0]))
    given = load_dataset("features", file=tmp_path / "space.npy", labels=tmp_path / "labels.npy")
    assert torch.equal(given.images, beside.images)
    assert given.labels.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("kind", "arrays", "message"),
    [
        ("arrays", {"image": IMAGES, "labels": LABELS}, "has no array 'images'; did you mean 'image'?"),
        ("arrays", {"images": IMAGES}, "has no array 'labels'"),
        ("arrays", {"images": IMAGES.astype(float), "labels": LABELS}, "must be uint8 of shape"),
        ("arrays", {"images": IMAGES[:, :, :4], "labels": LABELS}, "not uint8 of shape (4, 3, 4, 5)"),
        ("arrays", {"images": IMAGES, "labels": LABELS[:3]}, "must be 4 integers or texts, one per image"),
        ("arrays", {"images": IMAGES, "labels": np.ones(4)}, "not float64 of shape (4,)"),
        ("arrays", {"images": IMAGES, "labels": LABELS, "split": LABELS}, "unknown part"),
        ("arrays", {"images": IMAGES, "labels": LABELS, "split": LABELS[:2]}, "'split' in"),
        ("features", {"features": IMAGES, "labels": LABELS}, "must be numbers of shape (N, D)"),
        ("features", {"features": FEATURES * np.float16(np.nan), "labels": LABELS}, "not finite"),
    ],
)
def test_mistakes_are_explained(tmp_path, kind, arrays, message):
    with pytest.raises(EquimetricError) as caught:
        load_dataset(kind, file=saved(tmp_path, **arrays))
    assert message in str(caught.value)


def test_files_that_are_no_arrays(tmp_path):
    (tmp_path / "text.npz").write_text("text")
    (tmp_path / "text.npy").write_text("text")
    (tmp_path / "text.csv").write_text("label\na\n")
    for name, message in (
        ("none.npz", "there is no file"),
        ("text.npz", "not an .npz file"),
        ("text.npy", "not an .npy file"),
    ):
        with pytest.raises(EquimetricError, match=message):
            load_dataset("features", file=tmp_path / name)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.ones((4, 3), dtype=bool), r"must be numbers of shape \(N, D\), not bool of \(4, 3\)"),
        (np.ones((4, 3), dtype=complex), "must be numbers of shape"),
        (np.full((4, 3), np.nan), "have values that are not finite"),
        (np.full((4, 3), np.inf), "have values that are not finite"),
        (np.full((4, 3), 1e300), "have values that are not finite"),
        (np.ones(4), "must be numbers of shape"),
    ],
)
def test_features_that_are_no_finite_numbers(tmp_path, features, message):
    np.savez(tmp_path / "space.npz", features=features, labels=[0, 0, 1, 1])
    with pytest.raises(EquimetricError, match=message):
        load_dataset("features", file=tmp_path / "space.npz")


def test_whole_numbers_are_features_too(tmp_path):
    np.savez(tmp_path / "space.npz", features=np.arange(12).reshape(4, 3), labels=[0, 0, 1, 1])
    assert load_dataset("features", file=tmp_path / "space.npz").images.dtype == torch.float32


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([[0], [0], [1], [1]]), r"one per image, not int64 of shape \(4, 1\); store labels.squeeze\(1\)"),
        (np.array([False, False, True, True]), r"not bool of shape \(4,\); store labels.astype\(int\)"),
        (np.array([0.0, 0.0, 1.0, 1.0]), r"not float64 of shape \(4,\); store labels.astype\(int\)"),
    ],
)
def test_labels_of_other_kinds_say_what_to_do(tmp_path, labels, message):
    np.savez(tmp_path / "space.npz", features=np.ones((4, 3)), labels=labels)
    with pytest.raises(EquimetricError, match=message):
        load_dataset("features", file=tmp_path / "space.npz")
