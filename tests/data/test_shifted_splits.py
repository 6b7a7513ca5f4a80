import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from equimetric.data import (
    Dataset,
    class_means,
    frechet_distance,
    read_shifted_splits,
    shifted_split_of,
    shifted_splits,
    split_by_classes,
    write_shifted_splits,
)
from equimetric.errors import EquimetricError

NAMES = tuple(f"class {number}" for number in range(40))


def means(seed=0, classes=40, dimension=8):
    return torch.randn(classes, dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dataset(names=NAMES):
    labels = torch.arange(len(names)).repeat_interleave(2)
    return Dataset("forty", torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8), labels, names, {}, {}, "0")


def test_class_means():
    features = torch.tensor([[0.0, 2.0], [4.0, 4.0], [5.0, 5.0]])
    assert class_means(features, torch.tensor([1, 1, 0])).tolist() == [[5, 5], [2, 3]]


def test_frechet_distance_of_a_worked_case():
    train = [[-0.8, -1.32, -0.25], [0.42, 1.14, 0.11], [-0.55, -0.78, 0.75], [1.63, 0.27, -1.23], [-0.96, 1.6, 0.2]]
    train.append([-1.73, -0.08, -1.16])
    test = [[-0.13, 0.01, -0.21], [1.05, 0.44, -0.09], [0.91, 1.33, -1.14], [0.24, -0.48, 0.33], [-0.79, 0.52, 0.46]]
    sides = (torch.tensor(side, dtype=torch.float64) for side in (train, test))
    assert frechet_distance(*sides) == pytest.approx(1.1063441789910913, abs=1e-10)


def test_frechet_distance_of_more_dimensions_than_vectors():
    """In the two added dimensions nothing varies; each takes 2 · 1e-8 for the ridge inside the root, nothing else."""
    one, other = means(1, 6, 3), means(2, 5, 3)
    wider = [torch.cat([side, torch.zeros(len(side), 20)], dim=1) for side in (one, other)]
    assert frechet_distance(*wider) == pytest.approx(frechet_distance(one, other) - 20 * 2e-8, abs=1e-10)
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-6)
    shifted = one + torch.tensor([3.0, 0, 4.0])
    assert frechet_distance(one, shifted) == pytest.approx(25, abs=1e-6)
    with pytest.raises(EquimetricError, match="at least two vectors on each side"):
        frechet_distance(one[:1], other)


def test_the_first_swap_exchanges_the_classes_nearest_to_the_other_side():
    line = torch.tensor([[0.0], [1.0], [2.0], [9.0], [1.5], [8.0], [9.5], [10.0]])
    start, swapped = shifted_splits(line, tuple("abcdefgh"), train=[0, 1, 2, 3], swaps=1, step=1)
    assert start.train == tuple("abcd")
    assert swapped.train == tuple("abce")  # 9.0 goes to the high side, 1.5 comes to the low one
    assert swapped.test == tuple("dfgh")
    assert swapped.distance > start.distance


def test_swaps_make_splits_harder_and_easier_and_keep_sizes():
    harder = shifted_splits(means(), NAMES, swaps=5, step=1)
    easier = shifted_splits(means(), NAMES, swaps=3, step=1, easier=True)
    assert [split.swaps for split in harder] == [0, 1, 2, 3, 4, 5]
    assert harder[-1].distance > harder[0].distance > easier[-1].distance
    for split in harder:
        assert len(split.train) == len(split.test) == 20
        assert sorted(split.train + split.test) == sorted(NAMES)


def test_splits_are_recorded_after_every_step_of_swaps():
    assert [split.swaps for split in shifted_splits(means(), NAMES, swaps=7, step=3)] == [0, 3, 6, 7]


def test_swapped_classes_rest():
    """With a long memory no class moves twice, so swapping ends when all have moved."""
    restless = shifted_splits(means(), NAMES, swaps=60, step=2, remember=60)
    assert restless[-1].swaps == 20
    assert set(restless[-1].train) == set(restless[0].test)
    to_and_fro = shifted_splits(means(), NAMES, swaps=60, step=2, remember=0)
    assert to_and_fro[-1].swaps == 60


def test_classes_are_removed_when_swaps_no_longer_help():
    splits = shifted_splits(means(), NAMES, swaps=8, removals=5, step=2)
    assert [split.swaps for split in splits[:5]] == [0, 2, 4, 6, 8]
    assert [split.removals for split in splits if split.removals][-1] == 5
    for before, after in pairwise(splits[4:]):
        if after.swaps > before.swaps:
            assert after.removals == before.removals
            assert after.distance > before.distance
        else:
            assert after.removals in (before.removals + 2, 5)
            assert set(after.train) < set(before.train)
    assert all(len(split.train) == len(split.test) == 20 - split.removals for split in splits)
    assert splits[-1].distance > splits[4].distance


def fid_by_definition(one, other):
    difference = one.mean(0) - other.mean(0)
    first, second = np.cov(one, rowvar=False), np.cov(other, rowvar=False)
    ridge = 1e-8 * np.eye(one.shape[1])
    root = sqrtm((first + ridge) @ (second + ridge)).real
    return difference @ difference + np.trace(first) + np.trace(second) - 2 * np.trace(root)


def rank_by_definition(points, own, other):
    own_mean, other_mean = (sum(points[label] for label in side) / len(side) for side in (own, other))

    def nearness(label):
        return np.linalg.norm(points[label] - other_mean) - np.linalg.norm(points[label] - own_mean)

    return sorted(own, key=nearness)


def lists_by_definition(points, swaps, removals, step, tabu, easier):
    """Class lists by the text of the protocol, one swap after another."""
    train, test = list(range(len(points) // 2)), list(range(len(points) // 2, len(points)))
    history, found = [], []

    def after_swaps(train, test, count):
        ranked = rank_by_definition(points, train, test), rank_by_definition(points, test, train)
        if easier:
            ranked = [ranking[::-1] for ranking in ranked]
        train, test, swapped, now = list(train), list(test), list(history), set()
        for _ in range(count):
            rests = now | {label for pair in swapped[-tabu:] for label in pair}
            out, back = (next(label for label in ranking if label not in rests) for ranking in ranked)
            train[train.index(out)], test[test.index(back)] = back, out
            swapped.append((out, back))
            now |= {out, back}
        return train, test, swapped

    def record():
        found.append((sorted(train), sorted(test), fid_by_definition(points[train], points[test])))

    record()
    for _ in range(swaps // step):
        train, test, history = after_swaps(train, test, step)
        record()
    removed = 0
    while removed < removals:
        new_train, new_test, then = after_swaps(train, test, step)
        if fid_by_definition(points[new_train], points[new_test]) > found[-1][2]:
            train, test, history = new_train, new_test, then
        else:
            leave = rank_by_definition(points, train, test)[:step] + rank_by_definition(points, test, train)[:step]
            train, test = ([label for label in side if label not in leave] for side in (train, test))
            removed += step
        record()
    return found


@pytest.mark.parametrize(
    ("swaps", "removals", "step", "easier"),
    [(12, 0, 1, False), (14, 6, 2, False), (12, 6, 3, False), (10, 0, 2, True)],
)
def test_class_lists_are_those_of_the_protocol(swaps, removals, step, easier):
    """Harder and easier swapping and removal, each class list, against a brute-force reading of the definition."""
    points = means(3, 40, 4)
    names = tuple(map(str, range(40)))
    remember = 8 if easier else None
    found = shifted_splits(points, names, swaps=swaps, removals=removals, step=step, easier=easier, remember=remember)
    expected = lists_by_definition(points.numpy(), swaps, removals, step, remember or 5, easier)
    assert len(found) == len(expected)
    for split, (train, test, distance) in zip(found, expected, strict=True):
        assert split.train == tuple(map(str, train))
        assert split.test == tuple(map(str, test))
        assert split.distance == pytest.approx(distance, rel=1e-9)


def test_the_tabu_list_is_one_of_single_swaps():
    """With two swaps at a time and a memory of five, a class that has moved rests for two steps, not for five."""
    splits = shifted_splits(means(7, 12, 3), NAMES[:12], swaps=24, step=2, remember=5)
    moved = [set(after.train) - set(before.train) for before, after in pairwise(splits)]
    returning = [
        later - first
        for first, came in enumerate(moved)
        for later in range(first + 1, len(moved))
        if came - set(splits[later + 1].train)
    ]
    assert min(returning) == 3


def test_class_lists_are_frozen_on_disk(tmp_path):
    splits = shifted_splits(means(), NAMES, swaps=3, removals=2)
    file = tmp_path / "lists" / "shifted.json"
    write_shifted_splits(file, splits, dataset())
    assert read_shifted_splits(file, dataset()) == splits
    hardest = split_by_classes(dataset(), train=splits[-1].train, test=splits[-1].test)
    assert len(hardest.test) == 2 * len(splits[-1].test)
    assert len(hardest.train) + len(hardest.validation) == 2 * len(splits[-1].train)
    assert len(hardest.validation) == 2 * -(-len(splits[-1].train) // 4)


def test_a_split_by_its_number(tmp_path):
    splits = shifted_splits(means(), NAMES, swaps=3, step=1)
    write_shifted_splits(tmp_path / "shifted.json", splits, dataset())
    for number in (0, 3, -1, -4):
        assert shifted_split_of(tmp_path / "shifted.json", number, dataset()) == splits[number]
    for number in (4, -5):
        with pytest.raises(EquimetricError, match=rf"has 4 splits, numbered 0 to 3 .*; there is no number {number}"):
            shifted_split_of(tmp_path / "shifted.json", number, dataset())


def test_wrong_files_are_explained(tmp_path):
    file = tmp_path / "shifted.json"
    with pytest.raises(EquimetricError, match="there is no file"):
        read_shifted_splits(file, dataset())
    for content in ("no json", "{}", json.dumps({"format": "other"})):
        file.write_text(content)
        with pytest.raises(EquimetricError, match="holds no shifted splits"):
            read_shifted_splits(file, dataset())
    write_shifted_splits(file, shifted_splits(means(), NAMES, swaps=0), dataset())
    with pytest.raises(EquimetricError, match=r"'forty' with 40 classes; data set 'forty' has no class 'class 39'"):
        read_shifted_splits(file, dataset(NAMES[:39]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 0}, "step must be at least 1"),
        ({"removals": 19}, "19 removals leave fewer than two of 20 training and 20 test classes"),
        ({"train": [0, 99]}, "training class 99 does not exist; there are 0 to 39"),
    ],
)
def test_impossible_wishes(options, message):
    with pytest.raises(EquimetricError, match=message):
        shifted_splits(means(), NAMES, **options)
    with pytest.raises(EquimetricError, match="as many class names, not 3"):
        shifted_splits(means(), NAMES[:3])
