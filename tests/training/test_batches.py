import pytest
import torch

from equimetric.batches import ClassBalancedBatches
from equimetric.errors import EquimetricError

LABELS = torch.tensor([7, 7, 7, 7, 7, -1, -1, 2**40, 2**40, 2**40, 3, 3, 3, 3])


def sampler(**options):
    defaults = {"classes_per_batch": 3, "samples_per_class": 3, "batches": 50, "seed": 4}
    return ClassBalancedBatches(LABELS, **{**defaults, **options})


def test_every_batch_has_exactly_its_classes_and_samples():
    for batch in sampler():
        classes, counts = LABELS[batch].unique(return_counts=True)
        assert len(classes) == 3
        assert counts.tolist() == [3, 3, 3]


def test_no_sample_twice_where_the_class_has_enough_and_every_one_where_it_has_not():
    for batch in sampler():
        for label in LABELS[batch].unique():
            members = (label == LABELS).nonzero()[:, 0].tolist()
            drawn = [index for index in batch if LABELS[index] == label]
            assert len(set(drawn)) == min(3, len(members))


def test_every_sample_and_class_is_reached():
    assert {index for batch in sampler() for index in batch} == set(range(len(LABELS)))


def test_same_seed_same_batches_other_seed_other_batches():
    assert list(sampler()) == list(sampler())
    assert list(sampler()) != list(sampler(seed=5))


def test_epochs_differ_and_can_be_set():
    batches = sampler()
    first, second = list(batches), list(batches)
    assert first != second
    batches.set_epoch(1)
    assert list(batches) == second


def test_resumes_in_the_middle_of_an_epoch():
    undisturbed = list(sampler())
    broken_off = sampler()
    iterator = iter(broken_off)
    begun = [next(iterator) for _ in range(20)]
    resumed = sampler()
    resumed.load_state_dict(broken_off.state_dict())
    assert begun + list(resumed) == undisturbed


def test_works_as_the_batch_sampler_of_a_data_loader():
    data = torch.utils.data.TensorDataset(torch.arange(len(LABELS)), LABELS)
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler())
    assert len(loader) == 50
    assert [indices.tolist() for indices, _ in loader] == list(sampler())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes_per_batch": 5}, "a batch of 5 classes cannot be drawn from 4"),
        ({"samples_per_class": 0}, "must be at least 1"),
        ({"batches": 0}, "must be at least 1"),
    ],
)
def test_impossible_batches_are_refused(options, message):
    with pytest.raises(EquimetricError, match=message):
        sampler(**options)
