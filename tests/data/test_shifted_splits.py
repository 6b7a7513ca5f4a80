import json
from itertools import pairwise

import pytest
import torch

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


def test_swapped_classes_rest():
    """With a long memory no class moves twice, so swapping ends when all have moved."""
    restless = shifted_splits(means(), NAMES, swaps=60, step=2, remember=60)
    assert restless[-1].swaps == 10
    assert set(restless[-1].train) == set(restless[0].test)
    to_and_fro = shifted_splits(means(), NAMES, swaps=60, step=2, remember=0)
    assert to_and_fro[-1].swaps == 60


def test_classes_are_removed_when_swaps_no_longer_help():
    splits = shifted_splits(means(), NAMES, swaps=4, removals=3, step=2)
    assert [split.swaps for split in splits[:5]] == [0, 1, 2, 3, 4]
    assert splits[-1].removals == 3
    for before, after in pairwise(splits[4:]):
        if after.swaps > before.swaps:
            assert after.removals == before.removals
            assert after.distance > before.distance
        else:
            assert after.removals == before.removals + 1
            assert set(after.train) < set(before.train)
    assert all(len(split.train) == len(split.test) == 20 - 2 * split.removals for split in splits)
    assert splits[-1].distance > splits[4].distance


def test_class_lists_are_frozen_on_disk(tmp_path):
    splits = shifted_splits(means(), NAMES, swaps=3, removals=2)
    file = tmp_path / "lists" / "shifted.json"
    write_shifted_splits(file, splits, dataset())
    assert read_shifted_splits(file, dataset()) == splits
    hardest = split_by_classes(dataset(), train=splits[-1].train, test=splits[-1].test)
    assert len(hardest.test) == 2 * len(splits[-1].test)
    assert len(hardest.train) + len(hardest.validation) == 2 * len(splits[-1].train)
    assert len(hardest.validation) == 2 * (len(splits[-1].train) // 4)


def test_a_split_by_its_number(tmp_path):
    splits = shifted_splits(means(), NAMES, swaps=3)
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
        ({"removals": 10}, "10 removals of 2 classes leave fewer than two of 20 training and 20 test classes"),
        ({"train": [0, 99]}, "training class 99 does not exist; there are 0 to 39"),
    ],
)
def test_impossible_wishes(options, message):
    with pytest.raises(EquimetricError, match=message):
        shifted_splits(means(), NAMES, **options)
    with pytest.raises(EquimetricError, match="as many class names, not 3"):
        shifted_splits(means(), NAMES[:3])
