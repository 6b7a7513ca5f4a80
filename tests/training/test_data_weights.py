"""Weights that data sets carry into runs: read from a column, passed to the objective by row, part of the key."""

import csv
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from rounding import assert_same_digits

import equimetric as em
from equimetric.components import LOSSES
from equimetric.configuration import load_config
from equimetric.data import sample_weights
from equimetric.learners import Learner, SingleObjectiveLearner
from equimetric.objectives import Objective
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import load_run_data
from equimetric.runs.key import RunKey
from equimetric.runs.model import load_weights
from equimetric.training import train

CLASSES, EACH = 8, 6
LABELS = np.repeat(np.arange(CLASSES), EACH)
WEIGHTS = (np.arange(CLASSES * EACH) % 5) / 2


def features():
    centres = np.random.default_rng(0).normal(size=(CLASSES, 6))
    noise = np.random.default_rng(1).normal(size=(CLASSES * EACH, 6))
    return (centres[LABELS] + 0.5 * noise).astype(np.float32)


def store_features(folder, weights=WEIGHTS, **arrays):
    file = folder / "features.npz"
    np.savez(file, features=features(), labels=LABELS, importance=weights, **arrays)
    return file


def configuration(file, name="features", weights="importance", **tables):
    return {
        "method": "multi_similarity",
        "data": {"name": name, "options": {"file": str(file)}, **({"weights": weights} if weights else {})},
        "model": {"dim": 4},
        "batch": {"classes": 2, "samples": 4},
        "training": {"steps": 4, "validate_every": 2, "log_every": 1, "precision": "float64"},
        **tables,
    }


@pytest.fixture
def seen(monkeypatch):
    """(index, weight) of every batch that an objective got in training."""
    given, terms = [], Objective.terms

    def note(self, *arguments, **options):
        if self.training:
            given.append((options["index"], options.get("sample_weight")))
        return terms(self, *arguments, **options)

    monkeypatch.setattr(Objective, "terms", note)
    return given


@pytest.mark.parametrize("tables", [{}, {"batch": {"classes": 2, "samples": 4, "at_once": 3}}])
def test_the_objective_gets_the_weights_of_its_rows(tmp_path, seen, tables):
    config = configuration(store_features(tmp_path), **tables)
    train(config, folder=tmp_path / "run")
    rows = load_run_data(load_config(config, RunConfig).data).split.train
    assert len(seen) == 4
    for index, weight in seen:
        assert weight.tolist() == WEIGHTS[rows[index].numpy()].tolist()


def test_weights_of_one_change_nothing_and_others_do(tmp_path):
    figures = {}
    for name, weights in {"none": None, "ones": np.ones(len(LABELS)), "others": WEIGHTS}.items():
        (tmp_path / name).mkdir()
        file = store_features(tmp_path / name, WEIGHTS if weights is None else weights)
        config = configuration(file, weights=None if weights is None else "importance")
        train(config, folder=tmp_path / name / "run")
        log = (tmp_path / name / "run" / "metrics.jsonl").read_text().splitlines()
        figures[name] = [json.loads(line)["loss"] for line in log if json.loads(line)["kind"] == "train"]
    assert figures["ones"] == pytest.approx(figures["none"], rel=1e-9)
    assert figures["others"] != pytest.approx(figures["none"], rel=1e-3)


def key_of(values):
    config = load_config(values, RunConfig)
    return RunKey.from_config(config, load_run_data(config.data).fingerprint).content


def test_weights_are_part_of_the_key(tmp_path):
    file = store_features(tmp_path)
    weighted, plain = key_of(configuration(file)), key_of(configuration(file, weights=None))
    store_features(tmp_path, WEIGHTS + 1)
    assert key_of(configuration(file, weights=None)) == plain
    assert len({weighted, plain, key_of(configuration(file))}) == 3


def write_manifest(folder, weights):
    for number in range(len(LABELS)):
        Image.new("L", (8, 8), int(number)).save(folder / f"{number}.png")
    with (folder / "list.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "label", "importance"])
        writer.writerows((f"{n}.png", label, w) for n, (label, w) in enumerate(zip(LABELS, weights, strict=True)))
    return folder / "list.csv"


def test_a_column_of_a_manifest(tmp_path):
    file = write_manifest(tmp_path, [*WEIGHTS[:-1], ""])
    data = em.load_dataset("manifest", file=file, weights="importance", size=8, channels=1)
    assert data.sample_attributes["importance"][:3] == ("0.0", "0.5", "1.0")
    with pytest.raises(em.EquimetricError, match=r"'importance': the weight of image 48 is missing; give every image"):
        sample_weights(data, "importance")
    Image.new("L", (8, 8)).save(tmp_path / "0.png")
    (tmp_path / "47.png").write_bytes(b"no image")
    with pytest.warns(UserWarning, match="cannot be read"):
        kept = em.load_dataset("manifest", file=file, weights="importance", size=8, channels=1, damaged="skip")
    assert sample_weights(kept, "importance").tolist() == WEIGHTS[:-1].tolist()
    with pytest.raises(em.EquimetricError, match=r"has no column 'importanse'; did you mean 'importance'"):
        em.load_dataset("manifest", file=file, weights="importanse")


def test_a_column_beside_stored_features(tmp_path):
    np.save(tmp_path / "features.npy", features())
    rows = "".join(f"{label},{weight}\n" for label, weight in zip(LABELS, WEIGHTS, strict=True))
    (tmp_path / "features.csv").write_text("label,importance\n" + rows)
    data = em.load_dataset("features", file=tmp_path / "features.npy", weights="importance")
    assert sample_weights(data, "importance").tolist() == WEIGHTS.tolist()


def test_an_attribute_of_classes_holds_weights_too():
    data = em.load_dataset("digits").subset(torch.arange(40))
    by_class = tuple(str(number / 2) for number in range(data.classes))
    weighted = data.replace(class_attributes={"rarity": by_class})
    assert sample_weights(weighted, "rarity").tolist() == [label / 2 for label in data.labels.tolist()]


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-1.0, r"the weight of image 3 is '-1\.0'; give every image a finite number of 0 or more"),
        (math.nan, r"the weight of image 3 is 'nan'; give every image a finite number of 0 or more"),
        (math.inf, r"the weight of image 3 is 'inf'; give every image a finite number of 0 or more"),
    ],
)
def test_wrong_weights_are_one_sentence_before_training(tmp_path, weight, message):
    weights = WEIGHTS.copy()
    weights[2] = weight
    with pytest.raises(em.EquimetricError, match=rf"data\.weights = 'importance': {message}"):
        train(configuration(store_features(tmp_path, weights)), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_there_or_of_no_use_are_one_sentence(tmp_path):
    file = store_features(tmp_path)
    with pytest.raises(em.EquimetricError, match=r"has no array 'importanse'; did you mean 'importance'"):
        train(configuration(file, weights="importanse"), folder=tmp_path / "run")
    with pytest.raises(em.EquimetricError, match=r"data\.weights = 'rarity' names no attribute of the data"):
        train({**configuration(file), "data": {"name": "digits", "weights": "rarity"}}, folder=tmp_path / "run")
    with pytest.raises(em.EquimetricError, match=r"'other' .* must be 48 numbers, one per image, not float64 of shape"):
        train(configuration(store_features(tmp_path, other=np.ones((48, 2))), weights="other"), folder=tmp_path / "run")
    with pytest.raises(em.EquimetricError, match="no training image has a weight above 0"):
        train(configuration(store_features(tmp_path, np.zeros(48))), folder=tmp_path / "run")


def test_losses_and_learners_without_weights_refuse_them_before_training(tmp_path, monkeypatch):
    file = store_features(tmp_path)
    monkeypatch.setitem(LOSSES.find("multi_similarity").exempt, "sample weights", "it is tried without")
    with pytest.raises(
        em.EquimetricError, match=r"data\.weights = 'importance': 'multi_similarity' takes no weights: "
    ):
        train(configuration(file), folder=tmp_path / "run")
    monkeypatch.undo()
    monkeypatch.setattr(SingleObjectiveLearner, "weighs_samples", Learner.weighs_samples)
    with pytest.raises(em.EquimetricError, match=r"learner 'single' takes no weights; leave one of them out"):
        train(configuration(file), folder=tmp_path / "run")


WORKER = """
import json, sys
from pathlib import Path
from equimetric.training import train
from equimetric.processes import init_processes
folder = Path(sys.argv[1])
with init_processes("cpu") as processes:
    assert processes.is_distributed
    trained = train(json.loads((folder / "config.json").read_text()), folder=folder / "two")
    (folder / f"{processes.rank}.json").write_text(json.dumps(trained.metrics))
"""


@pytest.mark.slow
def test_two_processes_share_one_extraction_of_frozen_features_and_the_weights(tmp_path, monkeypatch):
    """From an empty cache: one process extracts, the other waits; both train what one process trains."""
    images = np.random.default_rng(2).integers(0, 256, (len(LABELS), 16, 16), dtype=np.uint8)
    images[:, 4:12, 4:12] = (LABELS * 30)[:, None, None]
    np.savez(tmp_path / "images.npz", images=images, labels=LABELS, importance=WEIGHTS)
    config = configuration(tmp_path / "images.npz", name="arrays", model={"dim": 4, "frozen": True})
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "worker.py").write_text(WORKER)
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "cache of two"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [*torchrun, str(tmp_path / "worker.py"), str(tmp_path)], timeout=120, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    (features_of_two,) = (tmp_path / "cache of two" / "features").iterdir()
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "cache of one"))
    trained = train(config, folder=tmp_path / "one")
    (features_of_one,) = (tmp_path / "cache of one" / "features").iterdir()
    assert features_of_two.name == features_of_one.name
    np.testing.assert_array_equal(np.load(features_of_two), np.load(features_of_one))
    assert_same_digits(
        load_weights(tmp_path / "two" / "model.safetensors"),
        load_weights(tmp_path / "one" / "model.safetensors"),
    )
    for rank in (0, 1):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == pytest.approx(dict(trained.metrics), abs=1e-5)
