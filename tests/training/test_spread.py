"""A collapse of the embeddings is noticed while it happens, and noticing changes nothing."""

import json
import warnings

import pytest
import torch

from equimetric.learners import SingleObjectiveLearner
from equimetric.runs.model import load_weights
from equimetric.training import train
from equimetric.training.spread import BatchSpread, measure_spread

CONFIG = {
    "method": "contrastive",
    "data": {"name": "digits"},
    "model": {"dim": 8},
    "batch": {"classes": 3, "samples": 4},
    "optimizer": {"lr": 0.01, "schedule": "constant"},
    "training": {"steps": 60, "validate_every": 60, "log_every": 10},
}


def log_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_spread_is_the_root_of_one_minus_the_mean_cosine():
    rows = torch.nn.functional.normalize(torch.randn(9, 4, dtype=torch.float64) + 1)
    assert measure_spread(rows) == pytest.approx(float((1 - (rows @ rows.T).mean()).sqrt()))
    assert measure_spread(rows) == pytest.approx(measure_spread(1e-6 * rows)), "whatever the scale"
    assert measure_spread(rows[:1].expand(9, 4)) == pytest.approx(0, abs=1e-12)
    assert measure_spread(torch.cat([rows, -rows])) == pytest.approx(1)
    assert measure_spread(torch.zeros(3, 2)) == 0
    assert measure_spread(torch.full((3, 2), torch.nan)) != 0


@pytest.fixture
def pulled_together(monkeypatch):
    """Every run minimises the distance of all embeddings to their mean."""

    def losses(learner, outputs, batch):
        rows = torch.nn.functional.normalize(outputs["embedding"])
        return {"pull": (rows - rows.mean(0)).square().sum()}

    monkeypatch.setattr(SingleObjectiveLearner, "losses", losses)


@pytest.mark.usefixtures("pulled_together")
def test_a_collapse_is_noticed_while_it_happens_and_once(tmp_path):
    with pytest.warns(UserWarning, match="contrastive, seed 0: The embeddings collapsed") as caught:
        trained = train(CONFIG, folder=tmp_path)
    assert len(caught) == 1
    spreads = {line["step"]: line["spread"] for line in log_of(tmp_path) if line["kind"] == "train"}
    assert min(spreads.values()) < 0.02, "the test needs a collapse"
    note = trained.result.notes[0]
    assert "a training batch" in note, "noticed before the validation at the end"
    assert "(now 0.01)" in note
    assert "optimizer.warmup_steps" in note


@pytest.mark.usefixtures("pulled_together")
def test_a_collapse_is_noticed_by_validation_and_remembered_by_a_resumed_run(tmp_path):
    training = {"steps": 80, "validate_every": 20, "log_every": 1000, "checkpoint_seconds": 0}
    config = {**CONFIG, "training": training}

    class KilledError(Exception):
        pass

    def kill(step, figures):
        if step == 70:
            raise KilledError

    with pytest.warns(UserWarning, match="collapsed"):
        undisturbed = train(config, folder=tmp_path / "undisturbed")
    with pytest.warns(UserWarning, match="collapsed"), pytest.raises(KilledError):
        train(config, folder=tmp_path / "killed", progress=kill)
    # Not again: here every warning is an error.
    killed = train(config, folder=tmp_path / "killed")
    assert killed.result.notes == undisturbed.result.notes
    values = [line["spread"] for line in log_of(tmp_path / "killed") if line["kind"] == "validation"]
    assert len(values) == 5
    assert values[-1] < 0.1 * values[0]


def test_young_batch_statistics_are_no_collapse(tmp_path):
    """Without a step of any size, the statistics of the first batches squeeze the embeddings of validation images."""
    training = {"steps": 10, "validate_every": 10, "log_every": 5}
    config = {**CONFIG, "model": {"dim": 8, "head_init": "pca"}, "optimizer": {"lr": 1e-12}, "training": training}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(config, folder=tmp_path)
    first, last = (line["spread"] for line in log_of(tmp_path) if line["kind"] == "validation")
    assert last < 0.1 * first


def test_a_run_that_learns_notices_nothing_and_measuring_changes_nothing(tmp_path, monkeypatch):
    config = {**CONFIG, "training": {"steps": 30, "validate_every": 15, "log_every": 5}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained = train(config, folder=tmp_path / "measured")
    assert not any("collapsed" in note for note in trained.result.notes)
    assert all(0 < line["spread"] <= 1 for line in log_of(tmp_path / "measured"))
    monkeypatch.setattr(BatchSpread, "observer", lambda *given: None)
    train(config, folder=tmp_path / "unmeasured")
    one, other = (load_weights(tmp_path / name / "model.safetensors") for name in ("measured", "unmeasured"))
    assert all(torch.equal(one[name], other[name]) for name in one | other)
