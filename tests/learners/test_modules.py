"""Slices, decorrelation, teachers, queues and clusters: what learners are made of."""

import itertools

import pytest
import torch
from torch import nn

from equimetric.errors import EquimetricError
from equimetric.geometry import unit
from equimetric.learners.modules.clusters import cluster, mask_singletons, match_clusters
from equimetric.learners.modules.decorrelation import Decorrelation, reverse_gradient
from equimetric.learners.modules.slices import Slices, aggregate, split_evenly
from equimetric.learners.modules.teacher import KeyQueue, MovingAverage


def test_members_share_the_dimensions():
    assert split_evenly(10, 4) == [3, 3, 2, 2]
    slices = Slices.equal(10, 4)
    embedding = torch.arange(20.0).view(2, 10)
    parts = slices.split(embedding)
    assert list(parts) == ["member1", "member2", "member3", "member4"]
    assert torch.equal(torch.cat(list(parts.values()), dim=1), embedding)
    with pytest.raises(EquimetricError, match="3 dimensions cannot be shared by 4 members"):
        split_evenly(3, 4)
    with pytest.raises(EquimetricError, match="members of 10 dimensions do not fit"):
        slices.split(embedding[:, :9])


def test_the_cosine_of_an_aggregation_is_the_weighted_mean_of_the_members():
    members = [torch.randn(5, size, dtype=torch.float64) for size in (2, 3)]
    cosines = [unit(member) @ unit(member).T for member in members]
    whole = unit(aggregate(members))
    torch.testing.assert_close(whole @ whole.T, (cosines[0] + cosines[1]) / 2)
    whole = unit(aggregate(members, [2.0, 1.0]))
    torch.testing.assert_close(whole @ whole.T, (4 * cosines[0] + cosines[1]) / 5)


TARGET = [[-0.026, -0.5, 0.583, -1.231], [0.345, -0.353, -0.074, 0.185], [-0.71, -0.343, -0.132, 0.431]]
TARGET += [[1.265, -1.775, -0.219, -1.666], [0.342, -0.84, 1.123, -0.391], [0.549, 0.348, 2.061, 0.961]]
SOURCE = [[0.102, -0.984, -0.618, -0.548], [-0.159, 0.284, -1.966, -0.259], [0.799, 0.788, -2.272, -0.039]]
SOURCE += [[0.655, -1.85, 0.853, 0.841], [0.882, -0.375, 1.218, 0.029], [-0.867, -0.367, 0.729, 0.506]]
FIRST = [[-0.986, -1.257, 0.952, 1.969], [0.515, -0.04, -0.584, 1.029], [-0.016, 1.54, -0.57, 0.676]]
FIRST += [[2.333, -1.145, -1.703, -0.949]]
SECOND = [[-0.676, -0.628, -0.326, 1.025], [0.743, 2.597, -0.269, -0.057], [-0.359, -0.252, -0.278, 1.114]]
SECOND += [[1.946, 0.03, -0.569, 0.324]]


@pytest.fixture
def worked():
    """A worked example: (decorrelation, target, source)."""
    decorrelation = Decorrelation(4, 4, hidden=4).double()
    first, _, second = decorrelation.regressor
    values = (FIRST, [0.955, -0.518, -1.455, 0.696], SECOND, [-0.415, -0.209, 0.046, -0.099])
    with torch.no_grad():
        for parameter, value in zip((first.weight, first.bias, second.weight, second.bias), values, strict=True):
            parameter.copy_(torch.tensor(value))
    return decorrelation, *(torch.tensor(rows, dtype=torch.float64, requires_grad=True) for rows in (TARGET, SOURCE))


def test_decorrelation_has_the_worked_value(worked):
    decorrelation, target, source = worked
    assert decorrelation(target, source).item() == pytest.approx(-0.0514036462, abs=1e-9)


def test_decorrelation_trains_the_regressor_one_way_and_the_embeddings_the_other(worked):
    decorrelation, target, source = worked

    def plain(target, source):
        return -(unit(target) * unit(decorrelation.regressor(unit(source)))).square().mean()

    decorrelation(target, source).backward()
    found = [target.grad, source.grad, decorrelation.regressor[0].weight.grad.clone()]
    expected = torch.autograd.grad(plain(target, source), [target, source, decorrelation.regressor[0].weight])
    torch.testing.assert_close(found[0], -expected[0])
    torch.testing.assert_close(found[1], -expected[1])
    torch.testing.assert_close(found[2], expected[2])
    assert torch.autograd.gradcheck(plain, (target, source))


def test_a_reversed_gradient_changes_its_sign_alone():
    values = torch.randn(3, dtype=torch.float64, requires_grad=True)
    out = reverse_gradient(values)
    assert torch.equal(out, values)
    out.square().sum().backward()
    torch.testing.assert_close(values.grad, -2 * values.detach())


def test_a_moving_average_follows_by_its_law_and_is_not_trained():
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    teacher = MovingAverage(network, momentum=0.75)
    start = network[0].weight.detach().clone()
    with torch.no_grad():
        network[0].weight += 1
        network[1].num_batches_tracked += 3
    for _ in range(2):
        teacher.follow(network)
    torch.testing.assert_close(teacher.module[0].weight, start + 1 - 0.75**2)
    assert int(teacher.module[1].num_batches_tracked) == 3
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert not teacher(torch.randn(4, 2)).requires_grad


def test_a_queue_holds_the_last_vectors():
    queue = KeyQueue(5, 1)
    assert len(queue.stored()[0]) == 0
    counter = itertools.count()
    for size in (2, 2, 2, 7, 1):
        rows = [next(counter) for _ in range(size)]
        queue.put(torch.tensor(rows, dtype=torch.float32)[:, None], torch.tensor(rows))
        keys, labels = queue.stored()
        last = rows[-1]
        assert sorted(labels.tolist()) == list(range(max(0, last - 4), last + 1))
        assert torch.equal(keys[:, 0].long(), labels)
    again = KeyQueue(5, 1)
    again.load_state_dict(queue.state_dict())
    assert torch.equal(again.stored()[1], queue.stored()[1])


def test_clusters_keep_their_numbers():
    """A cycle of three is no involution: its inverse is another permutation."""
    previous = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
    found = torch.tensor([1, 1, 1, 2, 2, 2, 0, 0, 1])
    assert match_clusters(found, previous, 3).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 0]
    unknown = previous.clone()
    unknown[::3] = -1
    assert match_clusters(found, unknown, 3).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 0]


def test_clustering_again_changes_nothing():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(60, 2, generator=generator) + 20 * torch.randn(4, 2, generator=generator).repeat(15, 1)
    first = cluster(points, 4, seed=0)
    again = cluster(points, 4, seed=7, previous=first)
    assert torch.equal(first, again)


def test_rows_without_a_partner_in_their_cluster_are_left_out():
    clusters, labels = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 0, 1])
    assert mask_singletons(clusters, labels).tolist() == [0, 0, -1, -1, -1]
