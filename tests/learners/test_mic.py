"""MIC: groups across classes, two kinds of steps, and an embedding without the auxiliary head."""

import pytest
import torch
from making import batch_for, configuration, make, require_training_only
from several_tasks import note_batches

from equimetric.learners.mic import standardise_by_class
from equimetric.training import train

NAME = "mic"


def test_standardised_points_have_mean_0_and_deviation_1_in_every_class():
    points = torch.randn(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60) % 4
    points[labels == 3] = 7.0
    found = standardise_by_class(points + 5 * labels[:, None], labels)
    for label in range(3):
        own = found[labels == label]
        torch.testing.assert_close(own.mean(0), torch.zeros(3, dtype=torch.float64))
        torch.testing.assert_close(own.std(0, correction=0), torch.ones(3, dtype=torch.float64))
    assert (found[labels == 3] == 0).all(), "a class without differences"


@pytest.mark.parametrize("task", ["class", "auxiliary"])
def test_both_kinds_of_steps_decorrelate(task):
    learner = make(NAME)
    batch = batch_for(learner, task)
    outputs = learner.outputs(batch)
    terms = learner.losses(outputs, batch)
    assert {name.split()[0] for name in terms} == {task, "decorrelation"}
    expected = 10 * learner.decorrelation(outputs["class"], outputs["auxiliary"])
    torch.testing.assert_close(terms["decorrelation"], expected)
    other = {"class": learner.heads["auxiliary"], "auxiliary": learner.network.head}[task]
    terms[next(iter(terms))].backward()
    assert other.weight.grad is None, "the other head is decorrelated, and nothing else"


def test_embeddings_need_the_class_head_alone():
    learner = make(NAME)
    require_training_only(learner, batch_for(learner, "class"))
    assert learner.members(learner.outputs(batch_for(learner, "class"))) == {}


def test_a_share_of_auxiliary_labels_is_random():
    learner = make(NAME)
    torch.manual_seed(0)
    labels = torch.zeros(10_000, dtype=torch.int64)
    replaced = learner.replace_labels(labels)
    # A fifth is drawn again, and a quarter of it draws the same of 4 groups.
    assert (replaced != labels).double().mean().item() == pytest.approx(0.2 * 3 / 4, abs=0.02)
    learner.noise = 0.0
    assert torch.equal(learner.replace_labels(labels), labels)


def test_auxiliary_batches_have_groups_as_labels(tmp_path, monkeypatch):
    seen = note_batches(monkeypatch, lambda learner: learner.clusters.clone())
    options = {"clusters": 4, "rho": 10.0, "probability": 3.0}
    model = train(configuration(NAME, learner={"options": options}, training={"steps": 12}), folder=tmp_path)
    tasks = [batch.task for batch, _ in seen]
    assert tasks.count("auxiliary") > tasks.count("class") > 0
    for batch, clusters in seen:
        if batch.task == "auxiliary":
            assert torch.equal(batch.labels, clusters[batch.index])
    first, last = seen[0][1], seen[-1][1]
    assert first.unique().tolist() == [0, 1, 2, 3]
    assert not torch.equal(first, last), "later groups are those of the auxiliary embedding"
    head, regressor = model.learner.heads["auxiliary"].weight.numel() + 8, (8 + 1) * 512 + (512 + 1) * 8
    assert model.result.cost.training_only == head + regressor
    assert model.result.cost.dim == 8
