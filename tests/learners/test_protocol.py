"""The hooks of the protocol, as a learner that uses all of them meets them in a run."""

import example_learners  # noqa: F401  (registers a learner)
import pytest
import torch

from equimetric.data import load_dataset
from equimetric.errors import EquimetricError
from equimetric.learners import LEARNERS
from equimetric.training import loop, train

CONFIG = {
    "method": "contrastive",
    "learner": {"name": "everything"},
    "data": {"name": "digits"},
    "model": {"dim": 8},
    "batch": {"classes": 3, "samples": 4},
    "training": {"steps": 12, "validate_every": 4, "log_every": 1, "checkpoint_seconds": 0},
}


def changed(**tables):
    return {**CONFIG, **{table: {**CONFIG.get(table, {}), **values} for table, values in tables.items()}}


@pytest.fixture
def batches(monkeypatch):
    """Every batch that a run trains on, with the clusters at that time."""
    seen = []
    backward = loop.backward

    def note(trainable, batch, *given, **options):
        seen.append((batch, trainable.learner.cluster.clone()))
        return backward(trainable, batch, *given, **options)

    monkeypatch.setattr(loop, "backward", note)
    return seen


def test_steps_are_shared_by_tasks_with_their_own_labels(tmp_path, batches):
    train(CONFIG, folder=tmp_path)
    labels = load_dataset("digits").labels
    training = torch.unique(labels[labels < 3], return_inverse=True)[1]
    tasks = [batch.task for batch, _ in batches]
    assert set(tasks) == {"classes", "clusters"}
    assert tasks.count("classes") > tasks.count("clusters")
    for batch, clusters in batches:
        expected = training if batch.task == "classes" else clusters
        assert torch.equal(batch.labels, expected[batch.index])
        assert batch.labels.bincount().tolist() == [4, 4, 4]


def test_held_out_rows_are_never_drawn(tmp_path, batches):
    train(CONFIG, folder=tmp_path)
    drawn = torch.cat([batch.index for batch, _ in batches])
    assert not (drawn % 7 == 0).any()
    assert len(drawn.unique()) > 50


def test_a_second_view_is_another_augmentation_of_the_same_images(tmp_path, batches):
    train(CONFIG, folder=tmp_path)
    for batch, _ in batches:
        (view,) = batch.views
        assert view.shape == batch.images.shape
        assert not torch.equal(view, batch.images)
        assert (view - batch.images).abs().mean() < (batch.images.roll(1, 0) - batch.images).abs().mean()


def test_batches_carry_the_clusters_of_their_rows(tmp_path, batches):
    train(CONFIG, folder=tmp_path)
    assert all(torch.equal(batch.group, clusters[batch.index]) for batch, clusters in batches)


def test_the_learner_looks_at_the_training_set_at_its_own_period(tmp_path):
    trained = train(CONFIG, folder=tmp_path)
    best = trained.best_step
    assert int(trained.learner.calls) == (best + 1) // 2
    assert float(trained.learner.mean.abs().sum()) > 0 or best == 0


def test_attributes_of_the_data_are_labels_too(tmp_path, monkeypatch):
    seen = []

    def note(learner, view):
        seen.append((view.attributes, view.labels))

    monkeypatch.setattr(LEARNERS["single"], "on_epoch", note)
    short = {"steps": 1, "validate_every": 1}
    train({**CONFIG, "data": {"name": "glyphs"}, "learner": {"name": "single"}, "training": short}, folder=tmp_path)
    ((attributes, labels),) = seen
    assert "script" in attributes
    assert all(ids.shape == labels.shape and int(ids.min()) == 0 for ids in attributes.values())
    # Every image of a class has the class's script.
    pairs = torch.stack([labels, attributes["script"]])
    assert pairs.unique(dim=1).shape[1] == len(labels.unique())


def test_groups_have_rates_of_their_own(tmp_path):
    still = changed(optimizer={"groups": {"adversary": {"lr": 1e-12}}}, training={"steps": 4})
    trained = train(still, folder=tmp_path / "still")
    moving = train(changed(training={"steps": 4}), folder=tmp_path / "moving")
    torch.manual_seed(0)
    assert trained.best_step == moving.best_step or trained.best_step + moving.best_step > 0
    with pytest.raises(EquimetricError, match="no parameter group 'advesary'; did you mean 'adversary'"):
        train(changed(optimizer={"groups": {"advesary": {"lr": 1.0}}}), folder=tmp_path / "wrong")


def test_options_of_a_learner_are_checked(tmp_path):
    with pytest.raises(EquimetricError, match="learner 'everything' has no option 'cluster'; did you mean 'clusters'"):
        train({**CONFIG, "learner": {"name": "everything", "options": {"cluster": 4}}}, folder=tmp_path)
    with pytest.raises(EquimetricError, match="unknown learner 'singel'; did you mean 'single'"):
        train({**CONFIG, "learner": {"name": "singel"}}, folder=tmp_path)


def test_a_forgotten_parameter_is_an_error(tmp_path, monkeypatch):
    groups = LEARNERS["everything"].parameter_groups
    monkeypatch.setattr(
        LEARNERS["everything"],
        "parameter_groups",
        lambda learner: {name: own for name, own in groups(learner).items() if name != "second"},
    )
    with pytest.raises(EquimetricError, match=r"'second\.weight' of Everything is in 0 of its parameter groups"):
        train(CONFIG, folder=tmp_path)
