"""Divide and conquer: which slice a batch touches, which rows are drawn, what the clusters are called."""

import pytest
import torch
from making import batch_for, configuration, make
from several_tasks import note_batches

from equimetric.errors import EquimetricError
from equimetric.geometry import unit
from equimetric.learners.modules.clusters import cluster_tasks
from equimetric.learners.modules.phases import Phases
from equimetric.training import train

NAME = "divide_and_conquer"
SLICES = {"slice1": slice(0, 4), "slice2": slice(4, 8)}


@pytest.mark.parametrize("task", SLICES)
def test_a_batch_of_a_cluster_touches_its_slice_alone(task):
    learner = make(NAME)
    batch = batch_for(learner, task)
    sum(learner.losses(learner.outputs(batch), batch).values()).backward()
    gradient = learner.network.head.weight.grad.norm(dim=1)
    inside = torch.zeros(8, dtype=torch.bool)
    inside[SLICES[task]] = True
    assert (gradient[inside] > 0).all()
    assert (gradient[~inside] == 0).all()


def test_the_joint_phase_touches_every_slice():
    learner = make(NAME)
    batch = batch_for(learner)
    sum(learner.losses(learner.outputs(batch), batch).values()).backward()
    assert (learner.network.head.weight.grad.norm(dim=1) > 0).all()


def test_slices_of_unit_length_stand_side_by_side():
    learner = make(NAME).eval()
    outputs = learner.outputs(batch_for(learner))
    whole = learner.embedding(outputs)
    members = learner.members(outputs)
    assert list(members) == list(SLICES)
    for name, place in SLICES.items():
        torch.testing.assert_close(unit(whole[:, place]), members[name])
        torch.testing.assert_close(whole[:, place].norm(dim=1), torch.full((24,), 0.5**0.5, dtype=torch.float64))


def test_batches_come_from_one_cluster_and_in_the_end_from_all(tmp_path, monkeypatch):
    seen = note_batches(monkeypatch, lambda learner: learner.drawn.clone())
    train(configuration(NAME), folder=tmp_path)
    tasks = [batch.task for batch, _ in seen]
    assert set(tasks[:6]) <= set(SLICES)
    assert tasks[6:] == ["main"]
    for batch, drawn in seen[:6]:
        assert (drawn[batch.index] == list(SLICES).index(batch.task)).all()


def test_clusters_keep_their_numbers_when_the_features_stay(tmp_path, monkeypatch):
    """A frozen backbone gives the same features at every clustering."""
    seen = note_batches(monkeypatch, lambda learner: learner.clusters.clone())
    options = {"options": {"clusters": 4, "period": 2, "joint": 0.0}}
    frozen = configuration(NAME, learner=options, model={"frozen": True, "head_init": "random"})
    train(frozen, folder=tmp_path)
    first, last = seen[0][1], seen[-1][1]
    assert sorted(first.unique().tolist()) == [0, 1, 2, 3]
    assert (first == last).double().mean() > 0.9


def test_a_cluster_of_one_class_has_no_task():
    clusters, labels = torch.tensor([0, 0, 0, 1, 1, -1]), torch.tensor([0, 0, 1, 2, 2, 2])
    (task,) = cluster_tasks(["a", "b"], clusters, labels)
    assert task.name == "a"
    assert task.labels.tolist() == [0, 0, 1, -1, -1, -1]


def test_phases_end_with_a_joint_one():
    class Parts:
        steps, validate_every = 100, 10

    assert Phases.from_factory(Parts, None, 0.05) == Phases(10, 90)
    assert Phases.from_factory(Parts, 7, 0.5) == Phases(7, 49)
    assert Phases.from_factory(Parts, 60, 0.9) == Phases(60, 60), "the first period divides"
    assert not Phases.from_factory(Parts, 10, 0.0).is_joint(10**9)


def test_its_cost_is_that_of_one_network(tmp_path):
    result = train(configuration(NAME, method="arcface"), folder=tmp_path).result
    assert result.cost.forward_passes == 1
    assert result.cost.dim == 8
    assert result.cost.training_only == 3 * (4 + 4 + 8), "class weights of both slices and of the whole"
    assert [(member.name, member.dim) for member in result.members] == [("slice1", 4), ("slice2", 4)]


@pytest.mark.parametrize("name", [NAME, "hierarchical_divide_and_conquer", "attributes", "mic"])
def test_objectives_that_inspect_the_training_set_are_refused(name):
    with pytest.raises(EquimetricError, match=f"learner '{name}' does not show the whole training set"):
        make(name, method="magnet")
