"""Batches and objectives that look at the embeddings of the training set at the start of every epoch."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from equimetric.batches import BATCHES, Batches, NeighbourClassBatches, SmartMiningBatches
from equimetric.configuration import load_config
from equimetric.data import load_dataset
from equimetric.errors import EquimetricError
from equimetric.learners import Batch, EpochView
from equimetric.losses.hierarchical_triplet import HierarchicalTriplet
from equimetric.losses.magnet import Magnet
from equimetric.objectives import compose
from equimetric.ops.kmeans import cluster_within_classes
from equimetric.ops.reductions import mean
from equimetric.pairs import Triplets
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.model import load_run, load_weights
from equimetric.runs.result import DataShape
from equimetric.training import train
from equimetric.training.distributed import Trainable
from equimetric.training.gradients import backward
from equimetric.training.placement import Placement

KINDS = {
    "class_balanced": ("contrastive", {"classes": 3, "samples": 4, "options": {"replacement": True}}),
    "exhaustive": ("contrastive", {"classes": 3, "samples": 60}),
    "n_pairs": ("npairs", {"classes": 3, "samples": 2}),
    "episodes": ("prototypical", {"classes": 4, "samples": 6, "options": {"episodes": 2}}),
    "fixed_triplets": ("triplet", {"classes": 8, "samples": 3, "options": {"set_size": 100}}),
    "hard_classes": ("npairs", {"classes": 2, "samples": 2, "options": {"candidates": 3}}),
    "neighbour_classes": ("multi_similarity", {"classes": 2, "samples": 4}),
    "hierarchy": ("hierarchical_triplet", {"classes": 2, "samples": 4, "options": {"neighbourhood": 2}}),
    "smart_mining": ("triplet", {"classes": 8, "samples": 3, "options": {"neighbours": 20, "interval": 2}}),
    "superclasses": ("contrastive", {"classes": 2, "samples": 4, "options": {"superclass": "parity"}}),
    "clusters": ("magnet_clusters", {"classes": 4, "samples": 3}),
}
FEW_DIGITS = str(Path(__file__).parents[1] / "learners" / "few_digits.json")
OPTIONS = {"prototypical": {"episodes": 2}}


def configuration(method, batch, **options):
    return {
        "method": method,
        "options": {**OPTIONS.get(method, {}), **options},
        "data": {"name": "digits"},
        "model": {"dim": 8},
        "batch": batch,
        "training": {"steps": 9, "validate_every": 3, "log_every": 3, "checkpoint_seconds": 0},
    }


def digits_with_parity(folder):
    digits = load_dataset("digits")
    parity = ["odd" if label % 2 else "even" for label in digits.labels.tolist()]
    np.savez(folder / "digits.npz", images=digits.images[:, 0], labels=digits.labels, parity=parity)
    return {"name": "arrays", "options": {"file": str(folder / "digits.npz")}}


class KilledError(Exception):
    pass


def kill(step, figures):
    if step == 5:
        raise KilledError


def weights(folder):
    return load_weights(folder / "model.safetensors")


def last_losses(folder):
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["kind"] == "train"]


@pytest.mark.parametrize("kind", BATCHES)
def test_every_kind_of_batches_trains_and_resumes_bit_for_bit(tmp_path, kind):
    method, batch = KINDS[kind]
    config = configuration(method, {"kind": kind, **batch})
    if kind == "superclasses":
        config["data"] = digits_with_parity(tmp_path)
    train(config, folder=tmp_path / "undisturbed")
    with pytest.raises(KilledError):
        train(config, folder=tmp_path / "killed", progress=kill)
    assert json.loads((tmp_path / "killed" / "checkpoint.json").read_text())["step"] == 3
    train(config, folder=tmp_path / "killed")
    # The last losses tell of the weights at the end, which need not be the best ones that are kept.
    assert last_losses(tmp_path / "undisturbed") == last_losses(tmp_path / "killed")
    one, other = weights(tmp_path / "undisturbed"), weights(tmp_path / "killed")
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert load_run(tmp_path / "killed").config.batch.kind == kind


def test_a_resumed_controller_goes_on_where_it_stood(tmp_path, monkeypatch):
    method, batch = KINDS["smart_mining"]
    # Every triple violates this margin, so the rank grows by a tenth after every second step.
    options = {**batch["options"], "margin": 9.0}
    config = configuration(method, {"kind": "smart_mining", **batch, "options": options})
    ranks = []
    record = SmartMiningBatches.record

    def noted(batches, active, triples):
        record(batches, active, triples)
        assert (active, triples) == (8, 8)
        ranks.append(batches.rank)

    monkeypatch.setattr(SmartMiningBatches, "record", noted)
    with pytest.raises(KilledError):
        train(config, folder=tmp_path, progress=kill)
    train(config, folder=tmp_path)
    # Steps 1 to 5 until killed, then 4 to 9 again from the checkpoint after step 3.
    expected = [1.1 ** (step // 2) for step in (1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9)]
    assert ranks == pytest.approx(expected)


def test_batches_are_refreshed_once_per_epoch_before_the_first_is_drawn(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(Batches, "refresh", lambda batches, view, labels: seen.append((len(view()), len(labels))))
    train(configuration("contrastive", {"classes": 2, "samples": 4}), folder=tmp_path)
    assert len(seen) == 3
    assert all(embeddings == labels for embeddings, labels in seen)


@pytest.mark.parametrize("kind", ["neighbour_classes", "hierarchy", "smart_mining", "clusters"])
def test_every_epoch_mines_the_whole_training_set_as_it_is_then(tmp_path, monkeypatch, kind):
    mined = []
    mine = BATCHES[kind].mine
    monkeypatch.setattr(BATCHES[kind], "mine", lambda *given: (mined.append(given[1]), mine(*given))[1])
    method, batch = KINDS[kind]
    train(configuration(method, {"kind": kind, **batch}), folder=tmp_path)
    training = int((load_dataset("digits").labels < 3).sum())
    assert [len(embeddings) for embeddings in mined] == [training] * 3
    assert not any(torch.equal(one, other) for one, other in pairwise(mined))


def test_the_triples_of_smart_mining_may_be_all_that_a_loss_sees(tmp_path, monkeypatch):
    _, batch = KINDS["smart_mining"]
    config = configuration("triplet+global_loss", {"kind": "smart_mining", **batch})
    config["options"] = {"triplet.selection": "triplet_rows", "triplet.margin": 0.2, "global_loss.lam": 0.8}
    counted = []
    from_rows = Triplets.from_rows

    def noted(pairs, rows):
        counted.append(len(rows))
        return from_rows(pairs, rows)

    monkeypatch.setattr(Triplets, "from_rows", noted)
    train(config, folder=tmp_path)
    assert set(counted) == {8}


def test_batches_are_mined_without_the_classes_that_a_learner_holds_out(tmp_path, monkeypatch):
    nearest = []
    mine = NeighbourClassBatches.mine

    def noted(batches, embeddings):
        found = mine(batches, embeddings)
        nearest.append((batches.labels.unique(), found["nearest"]))
        return found

    monkeypatch.setattr(NeighbourClassBatches, "mine", noted)
    config = configuration("pads", {"kind": "neighbour_classes", "classes": 3, "samples": 4})
    config |= {
        "data": {"name": "digits", "split": {"file": FEW_DIGITS}},
        "learner": {"name": "pads", "options": {"period": 2}},
    }
    trained = train(config, folder=tmp_path)
    held_out = trained.learner.held_out.nonzero()[:, 0]
    for classes, others in nearest:
        assert torch.isin(held_out, classes).sum() == 0
        assert len(others) == len(classes) == len(trained.learner.held_out) - len(held_out)


class PullToMeans(nn.Module):
    """A loss that keeps something of the whole training set."""

    def __init__(self):
        super().__init__()
        self.register_buffer("class_sizes", torch.zeros(3))
        self.register_buffer("total", torch.zeros(()))

    def on_epoch(self, embeddings, labels):
        self.class_sizes = labels.bincount(minlength=3).float()
        self.total = embeddings().sum()

    def forward(self, pairs):
        return mean(pairs.similarity * self.total, pairs.negative, pairs.weight)


def test_a_part_of_the_objective_may_begin_epochs():
    config = load_config(configuration("contrastive", {"classes": 2, "samples": 4}), RunConfig)
    learner = build_learner(config, DataShape(channels=1, vectors=False, classes=3, images=6))
    learner.objective = compose("triplet") + compose("contrastive")
    learner.objective.objectives[0].loss = PullToMeans()
    view, labels = torch.randn(6, 8), torch.tensor([0, 0, 0, 1, 1, 2])
    learner.on_epoch(EpochView(learner, labels, dict, [], lambda function, rows: {"embedding": view}, None))
    state = learner.state_dict()
    assert state["objective.objectives.0.loss.class_sizes"].tolist() == [3, 2, 1]
    assert state["objective.objectives.0.loss.total"] == view.sum()


def test_trees_and_clusters_of_the_training_set_are_renewed_every_epoch_also_when_resumed(tmp_path, monkeypatch):
    seen = []
    build_tree, set_clusters = HierarchicalTriplet.build_tree, Magnet.set_clusters
    monkeypatch.setattr(HierarchicalTriplet, "build_tree", lambda *given: (seen.append("tree"), build_tree(*given))[1])
    monkeypatch.setattr(Magnet, "set_clusters", lambda *given: (seen.append("clusters"), set_clusters(*given))[1])
    batch = {"classes": 3, "samples": 4}
    for method in ("hierarchical_triplet", "magnet_clusters"):
        seen.clear()
        config = configuration(method, batch)
        train(config, folder=tmp_path / method / "undisturbed")
        assert len(seen) == 3
        with pytest.raises(KilledError):
            train(config, folder=tmp_path / method / "killed", progress=kill)
        train(config, folder=tmp_path / method / "killed")
        assert last_losses(tmp_path / method / "undisturbed") == last_losses(tmp_path / method / "killed")
        one, other = (weights(tmp_path / method / name) for name in ("undisturbed", "killed"))
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_clusters_are_found_inside_each_class():
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [0.0, 1.0], [9.0, 1.0]])
    group = torch.arange(5).repeat(20)
    labels = torch.where(group < 3, 7, 2)
    points = centres[group] + 0.1 * torch.randn(100, 2, generator=generator)
    clusters = cluster_within_classes(points, labels, 3)
    for one in range(3):
        assert len(clusters[group == one].unique()) == 1
    assert clusters[labels == 7].unique().tolist() == [0, 1, 2]
    assert set(clusters[group == 3].tolist()).isdisjoint(clusters[group == 4].tolist())
    assert cluster_within_classes(torch.zeros(3, 2), torch.tensor([0, 0, 1]), 5)[2] == 0


def test_samplers_that_adapt_observe_the_embeddings():
    config = load_config(configuration("contrastive", {"classes": 2, "samples": 4}), RunConfig)
    learner = build_learner(config, DataShape(channels=1, vectors=False, classes=3, images=6))
    seen = []
    images = torch.randn(4, 1, 8, 8)
    batch = Batch(images, torch.tensor([0, 0, 1, 1]), torch.arange(4))
    backward(Trainable(learner), batch, Placement(torch.device("cpu")), observe=seen.append)
    assert [tuple(one.shape) for one in seen] == [(4, 8)]
    assert not seen[0].requires_grad


def test_a_wrong_kind_of_batches_is_one_sentence(tmp_path):
    config = configuration("contrastive", {"kind": "n_pairs", "classes": 2, "samples": 4})
    with pytest.raises(EquimetricError, match=r"set batch\.samples to 2"):
        train(config, folder=tmp_path)
