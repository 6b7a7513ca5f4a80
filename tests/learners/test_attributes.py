"""One head for each attribute: its own labels in training and in the evaluation."""

import pytest
import torch
from making import batch_for, configuration, make, require_training_only
from several_tasks import note_batches

from equimetric.data import load_dataset
from equimetric.data.attributes import attribute_ids, count_values
from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate
from equimetric.learners import Batch
from equimetric.runs.run_cache import RunCache
from equimetric.training import train

NAME = "attributes"
HEADS = ["class", "script", "block"]


@pytest.mark.parametrize("task", HEADS)
def test_a_batch_trains_its_head_alone(task):
    learner = make(NAME)
    batch = batch_for(learner, task)
    sum(learner.losses(learner.outputs(batch), batch).values()).backward()
    heads = {"class": learner.network.head, **learner.heads}
    assert {name for name, head in heads.items() if head.weight.grad is not None} == {task}


def test_embeddings_are_those_of_the_classes():
    learner = make(NAME)
    require_training_only(learner, batch_for(learner, "class"))


def test_batches_have_the_labels_of_their_attribute(tmp_path, monkeypatch):
    seen = note_batches(monkeypatch, lambda learner: learner.ids.clone())
    model = train(configuration(NAME, training={"steps": 12}), folder=tmp_path)
    assert {batch.task for batch, _ in seen} == set(HEADS)
    for batch, ids in seen:
        if batch.task != "class":
            assert torch.equal(batch.labels, ids[HEADS.index(batch.task) - 1][batch.index])
            assert len(batch.labels.unique()) == 3
    check_members(model)


def check_members(model):
    """Every head is evaluated on the test images by its own attribute; the class head is the embedding."""
    result = model.result
    assert [(member.name, member.labels) for member in result.members] == [
        ("class", None),
        ("script", "script"),
        ("block", "block"),
    ]
    assert result.diversity is None, "heads of different labels are no members of one ensemble"
    assert result.members[0].metrics == pytest.approx(result.metrics, abs=1e-6)
    dataset, rows = load_dataset("glyphs"), RunCache().data(model.config).rows("test")
    learner = model.learner.eval().double()
    with torch.no_grad():
        outputs = learner.outputs(Batch.unlabelled(learner.prepare(dataset.images[rows]).double()))
    labels = attribute_ids(dataset)["script"][rows]
    expected = evaluate(learner.members(outputs)["script"], labels, metrics=["map@r"])
    assert result.members[1].metrics["map@r"] == pytest.approx(expected["map@r"], abs=1e-5)


def test_values_are_counted_among_the_training_rows():
    dataset = load_dataset("glyphs")
    rows = (dataset.labels < 20).nonzero()[:, 0]
    counts, ids = count_values(dataset, rows), attribute_ids(dataset)
    assert counts == {name: len(ids[name][rows].unique()) for name in ids}


def test_names_must_be_attributes():
    def build(names):
        return make(NAME, learner={"options": {"names": names}})

    with pytest.raises(EquimetricError, match="needs the option names; the attributes of these data: 'script', "):
        build([])
    with pytest.raises(EquimetricError, match="'scirpt', which is no attribute of the data; did you mean 'script'"):
        build(["scirpt"])
    with pytest.raises(EquimetricError, match="different from each other"):
        build(["script", "script"])
