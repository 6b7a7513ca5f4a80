"""Images that few-shot episodes show."""

import pytest
import torch

from equimetric.data import Dataset
from equimetric.data.episodes import draw_support, episode_seed
from equimetric.errors import EquimetricError

LABELS = torch.tensor([0] * 8 + [3] * 4 + [5] * 2 + [9] * 12)


def test_every_class_shows_images_and_keeps_two():
    shown = LABELS[draw_support(LABELS, 5, seed=1)].tolist()
    assert [shown.count(label) for label in (0, 3, 5, 9)] == [5, 2, 0, 5]
    shown = LABELS[draw_support(LABELS, 5, seed=1, spare=1)].tolist()
    assert [shown.count(label) for label in (0, 3, 5, 9)] == [5, 3, 1, 5]


def test_images_of_few_shots_are_among_those_of_more():
    few, more, most = (set(draw_support(LABELS, shots, seed=4).tolist()) for shots in (2, 5, 10))
    assert few < more < most
    assert draw_support(LABELS, 5, seed=4).tolist() == sorted(more)
    assert draw_support(LABELS, 5, seed=5).tolist() != sorted(more)


def test_all_images_are_drawn_alike():
    counts = torch.zeros(len(LABELS))
    for seed in range(600):
        counts[draw_support(LABELS, 2, seed)] += 1
    assert counts[:8].min() / counts[:8].max() > 0.6
    assert counts[:8].sum() == 2 * 600


def dataset(size=2, names="abc"):
    labels = torch.arange(3).repeat_interleave(2)
    return Dataset("three", torch.zeros(6, 1, size, size, dtype=torch.uint8), labels, tuple(names), {}, {}, "")


def test_episodes_follow_from_the_classes_alone():
    rows = torch.arange(2, 6)
    seed = episode_seed(dataset(), rows, 0)
    assert episode_seed(dataset(size=8), rows, 0) == seed
    assert episode_seed(dataset(names="xbc"), rows, 0) == seed
    others = [episode_seed(dataset(names="abx"), rows, 0), episode_seed(dataset(), rows, 1)]
    others.append(episode_seed(dataset(), rows[1:], 0))
    assert seed not in others


def test_nothing_to_show():
    with pytest.raises(EquimetricError, match="none of 3 classes has more than 2 images, so there is nothing to show"):
        draw_support(dataset().labels, 1, seed=0)
    with pytest.raises(EquimetricError, match="shots is 0; an episode shows at least one image"):
        draw_support(LABELS, 0, seed=0)
