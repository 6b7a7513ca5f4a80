"""Batches that are drawn together are those that torch draws one by one."""

import numpy as np
import pytest
import torch

from equimetric.batches import ClassBalancedBatches
from equimetric.batches.permutations import draw_raw, first_of_permutations

SIZES = {
    "equal": ([60] * 37, 8, 4),
    "unequal": ([7, 9, 30, 4, 4], 2, 4),
    "all classes, whole classes": ([4, 4, 5, 4], 4, 4),
    "one image each": ([1] * 9, 3, 1),
    "many classes": ([3] * 2000, 32, 2),
}


@pytest.mark.parametrize(("size", "number"), [(1, 1), (5, 5), (37, 8), (200, 4), (1000, 32)])
def test_first_entries_are_those_of_torch(size, number):
    seeds = [0, 1, 7, 2**31 - 1]
    raw = np.pad(draw_raw(seeds, size - 1), ((0, 0), (0, 1)))
    found = first_of_permutations(raw, np.full(len(seeds), size), number)
    for row, seed in zip(found, seeds, strict=True):
        expected = torch.randperm(size, generator=torch.Generator().manual_seed(seed))[:number]
        assert row.tolist() == expected.tolist()


def labels_of(sizes):
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]


@pytest.mark.parametrize("case", SIZES)
def test_blocks_of_batches_are_those_drawn_one_by_one(case):
    sizes, classes, samples = SIZES[case]
    batches = ClassBalancedBatches(
        labels_of(sizes), classes_per_batch=classes, samples_per_class=samples, batches=150, seed=5
    )
    assert batches.block_size > 1
    for epoch in (0, 3):
        batches.set_epoch(epoch)
        for number in (0, 1, 63, 64, 149, 2):
            assert torch.equal(batches.units(number), batches.draw_batch(number)), (epoch, number)
    other = ClassBalancedBatches(batches.labels, classes_per_batch=classes, samples_per_class=samples, seed=9)
    batches.load_state_dict(other.state_dict())
    assert torch.equal(batches.units(0), other.draw_batch(0)), "of another seed"


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ([3, 9, 9], {}),
        ([9, 9, 9], {"replacement": True}),
        ([200_000, 200_000], {}),
    ],
)
def test_small_and_huge_classes_are_drawn_one_by_one(sizes, options):
    batches = ClassBalancedBatches(labels_of(sizes), classes_per_batch=2, samples_per_class=4, **options)
    assert batches.block_size == 1
    chosen = batches.units(3)
    assert chosen.shape == (2, 4)
    assert torch.equal(chosen, batches.draw_batch(3))
    assert all(len(set(batches.labels[row].tolist())) == 1 for row in chosen)
