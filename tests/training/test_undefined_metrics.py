"""Metrics that embeddings leave undefined: found before training where they can be, and never the end of a run."""

import json
import math

import numpy as np
import pytest
import torch

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.learners.single import SingleObjectiveLearner
from equimetric.runs.folder import RunFolder
from equimetric.training import train, validation

CONFIG = {
    "method": "contrastive",
    "data": {"name": "digits"},
    "model": {"dim": 8},
    "batch": {"classes": 3, "samples": 4},
    "training": {"steps": 4, "validate_every": 2, "log_every": 2},
    "evaluation": {"metrics": ["map@r", "opis", "recall@1"]},
}


@pytest.fixture
def collapsing(monkeypatch):
    """After the first optimiser step all embeddings are equal."""
    embedding, steps = SingleObjectiveLearner.embedding, []
    monkeypatch.setattr(SingleObjectiveLearner, "after_step", lambda self, step: steps.append(step))

    def collapse(self, outputs):
        found = embedding(self, outputs)
        return torch.ones_like(found) / found.shape[1] ** 0.5 if steps and not self.training else found

    monkeypatch.setattr(SingleObjectiveLearner, "embedding", collapse)
    return steps


def test_a_collapse_loses_neither_the_run_nor_the_other_metrics(tmp_path, collapsing):
    with pytest.warns(
        UserWarning, match=r"contrastive, seed 0: opis cannot be computed at step 2 and counts as NaN"
    ) as w:
        trained = train(CONFIG, folder=tmp_path / "run")
    assert len([one for one in w if "cannot be computed" in str(one.message)]) == 1, "said once, not at step 4 again"
    lines = [line for line in RunFolder(tmp_path / "run").history() if line["kind"] == "validation"]
    assert [line["step"] for line in lines] == [0, 2, 4]
    assert [math.isnan(line["opis"]) for line in lines] == [False, True, True]
    assert not any(math.isnan(line["map@r"]) for line in lines)
    assert math.isnan(trained.metrics["opis"])
    assert list(trained.metrics) == ["map@r", "opis", "recall@1"]
    (note,) = (note for note in trained.result.notes if "opis" in note)
    assert note.startswith("opis of the test classes is not defined: the calibration range")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "done"
    assert set(np.load(tmp_path / "run" / "per_query.npz").files) >= {"map@r", "recall@1"}


def test_embeddings_of_no_length_leave_all_metrics_undefined(tmp_path, monkeypatch, collapsing):
    collapse = SingleObjectiveLearner.embedding
    monkeypatch.setattr(
        SingleObjectiveLearner,
        "embedding",
        lambda self, given: collapse(self, given) * (0 if collapsing == [0, 1] else 1),
    )
    with pytest.warns(UserWarning, match=r"map@r, opis, recall@1 cannot be computed at step 2 and counts as NaN"):
        trained = train(CONFIG, folder=tmp_path / "run")
    assert trained.best_step in (0, 4)


def test_a_start_that_leaves_a_metric_undefined_is_an_error_before_training(tmp_path, monkeypatch, collapsing):
    collapsing.append(-1)
    steps = []
    with pytest.raises(EquimetricError, match=r"the calibration range .* is empty"):
        train(CONFIG, folder=tmp_path / "run", progress=lambda step, _: steps.append(step))
    assert steps == []


def test_metrics_of_the_test_alone_are_tried_at_the_start(tmp_path, monkeypatch):
    evaluate_part = validation.evaluate_part

    def refuse(found, config, **options):
        if found.cohort is not None:
            raise EquimetricError("the cohort is too small")
        return evaluate_part(found, config, **options)

    monkeypatch.setattr(validation, "evaluate_part", refuse)
    config = {**CONFIG, "evaluation": {"cohort": {"strength": 0.5}}}
    steps = []
    with pytest.raises(EquimetricError, match=r"with evaluation\.cohort cannot be computed: the cohort is too small"):
        train(config, folder=tmp_path / "run", progress=lambda step, _: steps.append(step))
    assert steps == []
    monkeypatch.undo()
    train(config, folder=tmp_path / "run")


def store_images(folder):
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 6)
    np.savez(folder / "images.npz", images=generator.integers(0, 256, (48, 16, 16), dtype=np.uint8), labels=labels)
    return {"name": "arrays", "options": {"file": str(folder / "images.npz")}}


def test_a_metric_that_only_a_baseline_cannot_have_is_found_before_anything_trains(tmp_path, in_process):
    """24 test images have a spectral decay of 4 dimensions, and none of 256 pixels."""
    study = {
        **CONFIG,
        "name": "decay",
        "workers": 1,
        "data": store_images(tmp_path),
        "model": {"dim": 4},
        "batch": {"classes": 2, "samples": 4},
        "evaluation": {"metrics": ["map@r", "spectral_decay"]},
        "methods": {"contrastive": {}},
    }
    del study["method"]
    message = (
        r"method 'raw_pixels': evaluation\.metrics = .* the spectral decay of 256 dimensions needs at least as many"
    )
    with pytest.raises(EquimetricError, match=message):
        em.compare(study, output=tmp_path / "runs")
    assert not list((tmp_path / "runs").rglob("metrics.jsonl"))
    em.compare({**study, "baselines": ["untrained"]}, output=tmp_path / "runs")
