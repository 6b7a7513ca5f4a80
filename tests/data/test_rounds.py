"""Training classes that arrive in rounds."""

import pytest
import torch

from equimetric.data import Split, class_disjoint_split, divide_rounds, train_in_round
from equimetric.errors import EquimetricError

LABELS = torch.arange(20).repeat_interleave(8)


def classes(rows):
    return LABELS[rows].unique().tolist()


def test_classes_arrive_in_the_order_of_their_labels():
    rounds = divide_rounds(LABELS, torch.arange(0, 10 * 8), of=4)
    assert [classes(train) for train, _ in rounds] == [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9]]
    assert [classes(test) for _, test in rounds] == [classes(train) for train, _ in rounds]
    together = torch.cat([rows for pair in rounds for rows in pair])
    assert together.sort().values.tolist() == list(range(80))


def test_a_quarter_of_the_images_is_set_aside_whatever_the_other_classes():
    rounds = divide_rounds(LABELS, torch.arange(0, 80), of=4)
    assert [len(test) for _, test in rounds] == [2 * count for count in (2, 3, 2, 3)]
    fewer = divide_rounds(LABELS, torch.arange(16, 80), of=2)
    assert fewer[0][1].tolist() == [row for _, test in rounds for row in test.tolist() if 16 <= row < 48]
    largest = divide_rounds(LABELS, torch.arange(0, 80), of=4, test_share=0.5)
    assert [len(test) for _, test in largest] == [4 * count for count in (2, 3, 2, 3)]


def test_small_classes_train_with_all_images():
    labels = torch.tensor([0] * 3 + [1] * 4 + [2] * 9 + [3] * 2)
    (first, tested), (second, others) = divide_rounds(labels, torch.arange(18), of=2)
    assert labels[first].tolist() == [0, 0, 0, 1, 1]
    assert labels[tested].tolist() == [1, 1]
    assert labels[second].bincount().tolist() == [0, 0, 7, 2]
    assert labels[others].tolist() == [2, 2]


@pytest.mark.parametrize(("keep", "trained"), [("all", [0, 1, 2, 3]), ("latest", [2, 3])])
def test_a_round_trains_on_the_classes_so_far_or_its_own(keep, trained):
    split = class_disjoint_split(LABELS)
    assert classes(split.train) == list(range(8))
    second = train_in_round(split, LABELS, number=2, of=4, keep=keep)
    assert classes(second.train) == trained
    assert torch.equal(second.test, split.test)
    assert torch.equal(second.validation, split.validation)
    assert [classes(rows) for rows in second.rounds] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert not set(second.train.tolist()) & set(torch.cat(second.rounds).tolist())
    final = second.with_train_parts("validation")
    assert len(final.rounds) == 4
    assert not len(final.validation)


def test_the_last_of_all_rounds_is_joint_training():
    split = class_disjoint_split(LABELS)
    last = train_in_round(split, LABELS, number=4, test_share=0)
    assert torch.equal(last.train, split.train)
    assert torch.equal(torch.cat(last.rounds).sort().values, split.train)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"number": 5}, "round 5 does not exist; with rounds.of = 4 choose one of 1 to 4"),
        ({"number": 0}, "round 0 does not exist"),
        ({"number": 1, "of": 5}, "8 training classes cannot arrive in 5 rounds of at least 2; choose fewer rounds"),
        ({"number": 1, "of": 1}, "classes arrive in two rounds at least"),
        ({"number": 1, "test_share": 1.0}, "rounds.test_share is 1.0"),
    ],
)
def test_impossible_rounds(options, message):
    with pytest.raises(EquimetricError, match=message):
        train_in_round(class_disjoint_split(LABELS), LABELS, **options)


def test_a_split_without_rounds_has_none():
    assert Split(LABELS, LABELS, LABELS).rounds == ()
