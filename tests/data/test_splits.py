import pytest
import torch

from equimetric.data import (
    Dataset,
    class_disjoint_split,
    require_pairs,
    split_by_classes,
    split_by_parts,
    split_dataset,
)
from equimetric.data.splits import require_two_images
from equimetric.errors import EquimetricError


def classes_of(labels, indices):
    return labels[indices].unique().tolist()


def test_the_rule_for_sixteen_classes():
    labels = torch.arange(16).repeat_interleave(3)
    # 8 test classes, 8 for cross-validation of which 2 validate; the window moves by 8/4 = 2 classes per fold
    expected = {
        0: ([0, 1, 2, 3, 4, 5], [6, 7]),
        1: ([2, 3, 4, 5, 6, 7], [0, 1]),
        2: ([0, 1, 4, 5, 6, 7], [2, 3]),
        3: ([0, 1, 2, 3, 6, 7], [4, 5]),
    }
    for fold, (train, validation) in expected.items():
        split = class_disjoint_split(labels, fold=fold)
        assert classes_of(labels, split.train) == train
        assert classes_of(labels, split.validation) == validation
        assert classes_of(labels, split.test) == list(range(8, 16))


def test_other_parts_may_train_too():
    labels = torch.arange(16).repeat_interleave(3)
    split = class_disjoint_split(labels, fold=1)
    both = split.with_train_parts("validation")
    assert torch.equal(both.train, torch.arange(24)), "rows ascend"
    assert len(both.validation) == 0
    assert torch.equal(both.test, split.test)
    everything = split.with_train_parts("validation", "test")
    assert torch.equal(everything.train, torch.arange(48))
    assert len(everything.test) == 0


def test_an_odd_number_of_classes_rounds_as_documented():
    labels = torch.arange(27)
    # n = 27: 13 test, m = 14, n_val = floor(3.375) = 3, fold 3 starts at floor(42/4) = 10: 10 … 13, 0 … 6 then 7, 8, 9
    split = class_disjoint_split(labels, fold=3)
    assert classes_of(labels, split.train) == [*range(7), *range(10, 14)]
    assert classes_of(labels, split.validation) == [7, 8, 9]
    assert classes_of(labels, split.test) == list(range(14, 27))


@pytest.mark.parametrize("classes", [7, 8, 12, 33, 100])
@pytest.mark.parametrize("fold", [0, 1, 2, 3])
def test_parts_are_disjoint_by_class_and_cover_everything(classes, fold):
    labels = torch.randint(classes, (classes * 6,), generator=torch.Generator().manual_seed(classes))
    labels[:classes] = torch.arange(classes)
    split = class_disjoint_split(labels, fold=fold)
    parts = [split.train, split.validation, split.test]
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(len(labels)))
    assert all(len(part) and part.dtype == torch.int64 and bool((part.diff() > 0).all()) for part in parts)
    groups = [set(classes_of(labels, part)) for part in parts]
    assert sum(map(len, groups)) == classes
    assert min(groups[2]) > max(groups[0] | groups[1])
    assert len(groups[2]) == classes // 2
    assert len(groups[1]) == max(2, classes // 8)


def test_labels_need_not_be_contiguous():
    contiguous, sparse = (
        torch.tensor([0, 1, 2, 3, 0, 4, 5, 6]),
        torch.tensor([-7, 20, 21, 999, -7, 2**40, 2**41, 2**42]),
    )
    for part in ("train", "validation", "test"):
        assert torch.equal(getattr(class_disjoint_split(sparse), part), getattr(class_disjoint_split(contiguous), part))


@pytest.mark.parametrize(
    ("classes", "options", "message"),
    [
        (6, {}, "at least 7 classes; these labels have 6"),
        (8, {"fold": 4}, "fold 4 does not exist; with folds=4 choose one of 0 to 3"),
        (8, {"fold": -1}, "fold -1 does not exist"),
        (8, {"folds": 0}, "folds must be at least 1"),
        (8, {"validation_fraction": 0.5}, "validation_fraction 0.5 leaves fewer than two classes to train on"),
        (8, {"validation_fraction": -0.1}, "validation_fraction -0.1"),
    ],
)
def test_impossible_splits(classes, options, message):
    with pytest.raises(EquimetricError, match=message):
        class_disjoint_split(torch.arange(classes), **options)


def test_a_seed_shuffles_the_folds_but_not_the_test():
    labels = torch.arange(40).repeat_interleave(2)
    ordered, seeded = class_disjoint_split(labels), class_disjoint_split(labels, seed=1)
    assert torch.equal(ordered.test, seeded.test)
    assert not torch.equal(ordered.validation, seeded.validation)
    assert torch.equal(seeded.validation, class_disjoint_split(labels, seed=1).validation)
    assert not torch.equal(seeded.validation, class_disjoint_split(labels, seed=2).validation)
    folds = [set(classes_of(labels, class_disjoint_split(labels, fold=fold, seed=1).validation)) for fold in range(4)]
    assert set.union(*folds) == set(range(20))
    assert sum(map(len, folds)) == 20


def dataset_in_parts(parts, labels):
    names = tuple(f"class {label}" for label in range(max(labels) + 1))
    images = torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8)
    return Dataset("official", images, torch.tensor(labels), names, {}, {"part": tuple(parts)}, "0")


def test_an_official_split_is_followed():
    # sixteen classes: odd ones are for the test
    labels = [label for label in range(16) for _ in range(2)]
    official = dataset_in_parts(["test" if label % 2 else "train" for label in labels], labels)
    split = split_dataset(official, fold=1)
    assert classes_of(official.labels, split.test) == [1, 3, 5, 7, 9, 11, 13, 15]
    assert classes_of(official.labels, split.validation) == [0, 2]
    assert classes_of(official.labels, split.train) == [4, 6, 8, 10, 12, 14]
    assert split.query is split.gallery is None


def test_without_an_official_split_classes_are_halved():
    dataset = dataset_with([2] * 10)
    ours, plain = split_dataset(dataset, fold=2), class_disjoint_split(dataset.labels, fold=2)
    assert all(torch.equal(getattr(ours, part), getattr(plain, part)) for part in ("train", "validation", "test"))


@pytest.mark.parametrize(
    ("parts", "labels", "message"),
    [
        (["train", "train", "test"], [0, 1, 1], "class 'class 1' of data set 'official' is in train and in test"),
        (["train", "validation", "test"], [0, 0, 1], "is in train and in validation"),
        (["train", "train"], [0, 1], "has no test images"),
        (["test", "query"], [0, 1], "has no train images"),
        (["train", "validation", "query"], [0, 1, 2], "has queries or a gallery only"),
    ],
)
def test_official_splits_that_cannot_be(parts, labels, message):
    with pytest.raises(EquimetricError, match=message):
        split_dataset(dataset_in_parts(parts, labels))


def test_a_split_by_class_names():
    dataset = dataset_with([2] * 10)
    split = split_by_classes(dataset, train="jabcdefg", test="h", folds=4, fold=0)
    assert classes_of(dataset.labels, split.test) == [7]
    assert classes_of(dataset.labels, split.validation) == [6, 9]
    assert classes_of(dataset.labels, split.train) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(EquimetricError, match="class 'a' is for training and for the test"):
        split_by_classes(dataset, train="abcde", test="ha")
    with pytest.raises(EquimetricError, match="unknown class of data set 'counted' 'z'"):
        split_by_classes(dataset, train="abcdz", test="h")


def test_five_parts_by_class_names():
    dataset = dataset_with([2] * 10)
    lists = {"train": "ab", "validation": "cd", "cohort": "j", "calibration": "e", "test": "gf"}
    split = split_by_parts(dataset, lists)
    assert {part: classes_of(dataset.labels, rows) for part, rows in split.parts().items()} == {
        "train": [0, 1],
        "validation": [2, 3],
        "test": [5, 6],
        "cohort": [9],
        "calibration": [4],
    }
    assert set(split.without_test().parts()) == {"train", "validation", "test", "cohort"}
    assert split_by_parts(dataset, {part: lists[part] for part in ("train", "validation", "test")}).cohort is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cohort": "a"}, "class 'a' is for train and for cohort; choose one"),
        ({"test": "z"}, "unknown class of data set 'counted' 'z'"),
        ({"validation": "c"}, "data.parts.validation names fewer than two classes"),
    ],
)
def test_lists_of_parts_that_cannot_be(changed, message):
    lists = {"train": "ab", "validation": "cd", "test": "gf", **changed}
    with pytest.raises(EquimetricError, match=message):
        split_by_parts(dataset_with([2] * 10), lists)


@pytest.mark.parametrize(("classes", "trained", "validated"), [(98, 73, 25), (86, 64, 22), (74, 55, 19), (62, 46, 16)])
def test_a_quarter_of_listed_classes_validates_as_in_the_published_lists(classes, trained, validated):
    names = tuple(map(str, range(classes + 1)))
    labels = torch.arange(classes + 1)
    dataset = Dataset("listed", torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8), labels, names, {}, {}, "0")
    split = split_by_classes(dataset, train=names[:-1], test=names[-1:])
    assert (len(split.train), len(split.validation)) == (trained, validated)


def dataset_with(counts):
    labels = torch.repeat_interleave(torch.tensor(counts))
    names = tuple("abcdefghij"[: len(counts)])
    return Dataset("counted", torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8), labels, names, {}, {}, "0")


def test_require_pairs():
    require_pairs(dataset_with([2, 3]))
    with pytest.raises(EquimetricError) as caught:
        require_pairs(dataset_with([2, 1, 3]))
    assert str(caught.value) == "class 'b' has one image; every class needs at least two, remove it or add images"


def test_many_lonely_classes_make_one_short_message():
    with pytest.raises(EquimetricError, match=r"7 classes have fewer than two images \('a', 'b', 'c', 'd', 'e', …\)"):
        require_pairs(dataset_with([1] * 7 + [2]))
    with pytest.raises(EquimetricError, match="class 'bare' has no image"):
        require_two_images({"bare": 0, "full": 5})
