"""Trials of a search validate as runs do, never see a test image, and leave nothing behind."""

import json

import numpy as np
import pytest

from equimetric.configuration import load_config
from equimetric.errors import EquimetricError
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import RunData
from equimetric.runs.run_cache import RunCache
from equimetric.stopping import Stopped
from equimetric.training import TrialResult, completion, train, train_trial, validation

TRAINING = {"steps": 9, "validate_every": 3, "log_every": 2}


@pytest.fixture
def features(tmp_path):
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(14), 8)
    vectors = (generator.normal(size=(14, 12))[labels] + generator.normal(size=(len(labels), 12))).astype(np.float32)
    np.savez(tmp_path / "features.npz", features=vectors, labels=labels)
    return {"name": "features", "options": {"file": str(tmp_path / "features.npz")}}


def cases(features):
    batch = {"classes": 3, "samples": 3}
    digits = {"data": {"name": "digits"}, "batch": {"classes": 3, "samples": 4}, "training": TRAINING}
    vectors = {"data": features, "model": {"dim": 4}, "batch": batch, "training": TRAINING}
    return {
        "features": {"method": "contrastive", **vectors},
        "proxies, moving average": {"method": "arcface", **vectors, "training": {**TRAINING, "ema": 0.9}},
        "random selection": {"method": "margin", **vectors, "seed": 3},
        "patience": {"method": "contrastive", **vectors, "training": {**TRAINING, "patience": 3}},
        "frozen": {"method": "contrastive", **digits, "model": {"dim": 4, "frozen": True}},
        "images": {"method": "multi_similarity_miner", **digits, "model": {"dim": 4}},
        "cohort": {"method": "contrastive", **vectors, "evaluation": {"cohort": {}}},
    }


def without_times(result):
    return {key: value for key, value in result.model_dump().items() if key != "seconds"}


@pytest.mark.parametrize("case", cases({}))
def test_a_trial_has_the_validation_scores_of_a_run(case, features, tmp_path):
    config = cases(features)[case]
    trial, run = train_trial(config), train(config, folder=tmp_path / "run")
    assert trial.validation == run.validation
    assert (trial.best_step, trial.steps) == (run.best_step, run.result.steps)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert list(trial.history) == [line for line in lines if line["kind"] == "validation"]
    assert trial.seconds > 0
    again = TrialResult.model_validate_json(trial.model_dump_json())
    assert again == trial


def test_what_is_shared_changes_nothing(features):
    every = list(cases(features).values())
    cache = RunCache()
    for _ in range(2):
        for config in every:
            assert without_times(train_trial(config, cache=cache)) == without_times(train_trial(config))


def test_nothing_is_written_and_no_test_image_is_embedded(features, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    embed, parts = validation.embed_part, []

    def note(learner, data, part, *given, **options):
        parts.append(part)
        return embed(learner, data, part, *given, **options)

    monkeypatch.setattr(validation, "embed_part", note)
    monkeypatch.setattr(completion, "embed_part", lambda *_: pytest.fail("this is for the end of a run"))
    train_trial(cases(features)["features"])
    assert parts == ["validation"] * 4
    assert set(tmp_path.iterdir()) == before


def test_the_data_of_a_trial_have_no_test_rows(features, monkeypatch):
    seen = []
    rows = RunData.rows
    monkeypatch.setattr(
        RunData, "rows", lambda data, part: seen.append((part, len(rows(data, part)))) or rows(data, part)
    )
    cache = RunCache()
    train_trial(cases(features)["features"], cache=cache)
    assert {number for part, number in seen if part == "test"} == {0}
    config = load_config(cases(features)["features"], RunConfig)
    assert len(cache.data(config).split.test) > 0
    assert len(cache.data(config, test=False).split.test) == 0


def test_a_trial_of_a_final_model_raises(features):
    refit = {"classes": "training", "steps": 3, "source": "0"}
    with pytest.raises(EquimetricError, match="a final model has no validation classes"):
        train_trial({**cases(features)["features"], "refit": refit})


def test_a_signal_stops_a_trial(features):
    import signal

    def stop(step, figures):
        if step == 4:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped):
        train_trial(cases(features)["features"], progress=stop)
