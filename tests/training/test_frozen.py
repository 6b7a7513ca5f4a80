"""Heads trained on features that are computed once, and on features that are given."""

import errno
import os

import numpy as np
import pytest
import torch

import equimetric as em
from equimetric.backbones import build_network
from equimetric.errors import EquimetricError, StorageError
from equimetric.processes import Processes
from equimetric.runs import feature_file
from equimetric.runs.features import cached_features
from equimetric.runs.model import load_run
from equimetric.training import train

ALONE = Processes()
CONFIG = {
    "method": "contrastive",
    "data": {"name": "digits"},
    "model": {"dim": 8, "frozen": True},
    "batch": {"classes": 3, "samples": 4},
    "training": {"steps": 6, "validate_every": 3, "log_every": 3, "checkpoint_seconds": 0},
}


@pytest.fixture
def own_features(monkeypatch, tmp_path):
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


def test_features_are_computed_once_and_follow_from_images_and_weights(own_features):
    dataset = em.load_dataset("digits")
    torch.manual_seed(0)
    backbone = build_network("small_cnn", channels=1, dim=8).backbone
    features = cached_features(backbone, dataset, ALONE)
    with torch.no_grad():
        expected = backbone.eval()(backbone.convention.apply(dataset.images[:40]))
    torch.testing.assert_close(features[:40], expected)
    (file,) = own_features.iterdir()
    written = file.stat().st_mtime_ns
    assert torch.equal(cached_features(backbone, dataset, ALONE), features)
    assert file.stat().st_mtime_ns == written
    features[0] = 0.0
    assert not torch.equal(cached_features(backbone, dataset, ALONE)[0], features[0]), "the file stays as it is"
    with torch.no_grad():
        next(backbone.parameters())[0] += 1
    cached_features(backbone, dataset, ALONE)
    cached_features(backbone, dataset.subset(torch.arange(9)), ALONE)
    assert len(list(own_features.iterdir())) == 3


def test_a_damaged_file_is_written_anew(own_features):
    dataset = em.load_dataset("digits").subset(torch.arange(20))
    backbone = build_network("small_cnn", channels=1, dim=8).backbone
    features = cached_features(backbone, dataset, ALONE).clone()
    (file,) = own_features.iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    assert torch.equal(cached_features(backbone, dataset, ALONE), features)


def test_a_full_disk_is_a_message(own_features, monkeypatch):
    def full(*given, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(feature_file.os, "posix_fallocate", full)
    with pytest.raises(StorageError, match=r"cannot be written .*: the disk is full; choose another place"):
        train(CONFIG, folder=own_features.parent / "run")
    assert not list(own_features.iterdir()), "nothing unfinished is left behind"


@pytest.mark.usefixtures("own_features")
def test_only_the_head_learns_and_the_model_embeds_images_end_to_end(tmp_path):
    trained = train(CONFIG, folder=tmp_path / "run")
    start = build_network_of(CONFIG)
    backbone = trained.learner.network.backbone
    assert all(torch.equal(one, other) for one, other in zip(backbone.parameters(), start, strict=True))
    images = em.load_dataset("digits").images[:12]
    loaded = load_run(tmp_path / "run")
    assert torch.equal(loaded.embed(images), trained.embed(images))
    features = cached_features(backbone, em.load_dataset("digits"), ALONE)[:12]
    expected = torch.nn.functional.normalize(trained.learner.network.head(features))
    torch.testing.assert_close(trained.embed(images), expected.detach(), rtol=1e-5, atol=1e-6)


def build_network_of(config):
    from equimetric.configuration import load_config
    from equimetric.runs.building import build_learner
    from equimetric.runs.configuration import RunConfig
    from equimetric.runs.result import DataShape

    learner = build_learner(load_config(config, RunConfig), DataShape(channels=1, vectors=False, classes=3, images=9))
    return list(learner.network.backbone.parameters())


@pytest.mark.usefixtures("own_features")
def test_a_killed_frozen_run_goes_on(tmp_path):
    class KilledError(Exception):
        pass

    def kill(step, figures):
        if step == 5:
            raise KilledError

    with pytest.raises(KilledError):
        train(CONFIG, folder=tmp_path / "killed", progress=kill)
    one, other = train(CONFIG, folder=tmp_path / "killed"), train(CONFIG, folder=tmp_path / "undisturbed")
    for first, second in zip(one.learner.parameters(), other.learner.parameters(), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("model", [{"frozen": True}, {"frozen": False}])
def test_a_head_that_starts_at_the_principal_directions(tmp_path, model):
    config = {**CONFIG, "model": {"dim": 8, "head_init": "pca", **model}, "optimizer": {"lr": 1e-12}}
    trained = train(config, folder=tmp_path)
    weight = trained.learner.network.head.weight
    torch.testing.assert_close(weight @ weight.T, torch.eye(8), rtol=0, atol=1e-5)
    plain = train({**config, "model": {"dim": 8, "head_init": "random", **model}}, folder=tmp_path / "random")
    assert trained.validation["map@r"] > plain.validation["map@r"]


def test_features_that_are_given_train_a_head(tmp_path):
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 10)
    centres = generator.normal(size=(12, 20))
    features = (centres[labels] + 0.1 * generator.normal(size=(120, 20))).astype(np.float32)
    np.savez(tmp_path / "features.npz", features=features, labels=labels)
    config = {**CONFIG, "data": {"name": "features", "options": {"file": str(tmp_path / "features.npz")}}}
    with pytest.raises(EquimetricError, match="these data are features already"):
        train(config, folder=tmp_path / "frozen")
    trained = train({**config, "model": {"dim": 8}}, folder=tmp_path / "run")
    assert trained.learner.network.backbone is None
    assert trained.metrics["recall@1"] > 0.9
    vectors = torch.from_numpy(features[:5])
    assert torch.equal(load_run(tmp_path / "run").embed(vectors), trained.embed(vectors))
