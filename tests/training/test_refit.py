"""A final model: a finished run repeated on more classes, for its best number of steps."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import equimetric as em
from equimetric.configuration import load_config
from equimetric.errors import EquimetricError
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import load_run_data
from equimetric.runs.evaluation import embed_run, evaluate_part
from equimetric.runs.model import load_weights
from equimetric.training import loop
from equimetric.training.refit import plateaus, refit_config

CONFIG = {
    "method": "arcface",
    "data": {"name": "features"},
    "model": {"dim": 6},
    "batch": {"classes": 3, "samples": 4},
    "optimizer": {"lr": 0.01, "objective_lr": 0.1},
    "training": {"steps": 12, "validate_every": 3, "log_every": 3, "checkpoint_seconds": 0},
}


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Sixteen classes of eight vectors: six train, two validate, eight test."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(16), 8)
    vectors = generator.normal(size=(16, 20))[labels] + 2 * generator.normal(size=(128, 20))
    file = tmp_path_factory.mktemp("data") / "features.npz"
    np.savez(file, features=vectors.astype(np.float32), labels=labels)
    return file


def configuration(features, **tables):
    base = {**CONFIG, "data": {"name": "features", "options": {"file": str(features)}}}
    return {**base, **{name: {**base.get(name, {}), **values} for name, values in tables.items()}}


@pytest.fixture(scope="module")
def source(features, tmp_path_factory, script_validation):
    """A run that is best at step 6 of 12."""
    folder = tmp_path_factory.mktemp("source") / "run"
    with pytest.MonkeyPatch.context() as patch:
        script_validation(patch, (0.1, 0.2, 0.5, 0.4, 0.3))
        em.train(configuration(features), folder=folder)
    return folder


def rates_of(monkeypatch, run):
    """The learning-rate factors that a training uses, one per step."""
    rates = []
    set_rates = loop.set_learning_rates
    with monkeypatch.context() as patch:
        patch.setattr(
            loop, "set_learning_rates", lambda optimizer, factor: (rates.append(factor), set_rates(optimizer, factor))
        )
        run()
    return rates


def environment_key(folder):
    return json.loads((folder / "environment.json").read_text())["key"]


def test_validation_classes_train_too_and_the_test_is_taken_once(source, tmp_path, monkeypatch):
    before, results = em.load(source), []
    assert before.best_step == 6
    rates = rates_of(monkeypatch, lambda: results.append(em.refit(source, folder=tmp_path / "final")))
    (final,) = results
    assert before.result.data.classes == 6
    assert final.result.data.classes == 8
    assert final.learner.objective.references.weight.shape[0] == 8, "one proxy for every class"
    assert final.result.steps == final.best_step == before.best_step == len(rates)
    # The schedule of the source, which ends later: a quarter-cosine, not a whole one.
    again = rates_of(monkeypatch, lambda: em.train(before.config, folder=tmp_path / "again"))
    assert rates == again[: len(rates)]
    assert final.result.role == "refit"
    assert final.result.source.key == environment_key(source)["content"] != environment_key(final.folder)["content"]
    assert final.result.source.folder == str(source)
    assert set(final.metrics) == set(before.metrics)
    assert final.metrics != before.metrics
    assert final.validation == {}
    assert "validation classes among the training classes" in final.result.notes[0]
    kinds = {json.loads(line)["kind"] for line in (final.folder / "metrics.jsonl").read_text().splitlines()}
    assert kinds == {"train"}


def test_a_final_model_loads_and_evaluates_to_its_figures(source, tmp_path):
    final = em.refit(source, folder=tmp_path / "final")
    loaded = em.load(tmp_path / "final")
    vectors = torch.randn(5, 20)
    assert torch.equal(loaded.embed(vectors), final.embed(vectors))
    config, found = embed_run(tmp_path / "final")
    assert dict(evaluate_part(found, config.evaluation)) == dict(final.metrics)
    with pytest.raises(EquimetricError, match="trained on its validation classes, so they cannot measure it; evaluate"):
        embed_run(tmp_path / "final", "validation")
    assert len(embed_run(tmp_path / "final", "train")[1].labels) == 64


def test_all_classes_leave_nothing_to_test(source, tmp_path):
    final = em.refit(source, classes="all", folder=tmp_path / "final")
    assert final.result.data.classes == 16
    assert final.result.data.images == 128
    assert final.metrics == final.validation == {}
    assert not (tmp_path / "final" / "per_query.npz").exists()
    assert "No class is left to test it" in final.result.notes[0]
    assert "no class left" in repr(final)
    for part in ("test", "validation"):
        with pytest.raises(
            EquimetricError, match=f"trained on its {part} classes.* evaluate the run that it repeats, '"
        ):
            embed_run(tmp_path / "final", part)
    assert em.load(tmp_path / "final").embed(torch.randn(5, 20)).shape == (5, 6)


def test_a_killed_final_model_resumes_and_a_finished_one_is_loaded(source, tmp_path):
    class KilledError(Exception):
        pass

    def kill(step, figures):
        assert "best map@r" not in figures
        if step == 4:
            raise KilledError

    em.refit(source, classes="all", folder=tmp_path / "undisturbed")
    with pytest.raises(KilledError):
        em.refit(source, classes="all", folder=tmp_path / "killed", progress=kill)
    em.refit(source, classes="all", folder=tmp_path / "killed")
    one, other = (load_weights(tmp_path / name / "model.safetensors") for name in ("killed", "undisturbed"))
    assert all(torch.equal(one[name], other[name]) for name in one | other)
    written = (tmp_path / "killed" / "model.safetensors").stat().st_mtime_ns
    em.train(tmp_path / "killed" / "config.toml", folder=tmp_path / "killed")
    assert (tmp_path / "killed" / "model.safetensors").stat().st_mtime_ns == written
    with pytest.raises(EquimetricError, match="holds a run with another configuration"):
        em.refit(source, classes="training", folder=tmp_path / "killed")


def test_a_moved_source_gives_the_same_final_model(source, tmp_path):
    shutil.copytree(source, tmp_path / "moved")
    keys = [
        environment_key(em.refit(run, folder=tmp_path / str(number)).folder)
        for number, run in enumerate((source, tmp_path / "moved"))
    ]
    assert keys[0] == keys[1]


def test_a_frozen_backbone_has_its_features_already(tmp_path, monkeypatch, script_validation):
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "cache"))
    config = {**CONFIG, "data": {"name": "digits"}, "model": {"dim": 6, "frozen": True}, "method": "multi_similarity"}
    script_validation(monkeypatch, (0.1, 0.2, 0.5, 0.4, 0.3))
    em.train(config, folder=tmp_path / "run")
    from equimetric.runs import features

    def compute_again(*given):
        raise AssertionError("the features are there already")

    monkeypatch.setattr(features, "write_features", compute_again)
    final = em.refit(tmp_path / "run", classes="all", folder=tmp_path / "final")
    assert final.result.data.classes == 10
    images = em.load_dataset("digits").images[:4]
    assert torch.equal(em.load(tmp_path / "final").embed(images), final.embed(images))


def test_patience_average_and_plateaus_follow_the_source(features, tmp_path, monkeypatch, script_validation):
    config = configuration(
        features,
        optimizer={"schedule": "plateau", "plateau_steps": 3, "decay": 0.5},
        training={"steps": 30, "patience": 6, "ema": 0.5},
    )
    # Best at steps 0, 9 and 12; rates are lowered at 3, 6, 15 and 18, and after 21 the patience is over.
    script_validation(monkeypatch, (0.3, 0.2, 0.1, 0.4, 0.5, 0.1, 0.1, 0.1))
    rates = rates_of(monkeypatch, lambda: em.train(config, folder=tmp_path / "run"))
    assert rates == [1] * 3 + [0.5] * 3 + [0.25] * 9 + [0.125] * 3 + [0.0625] * 3
    repeated = rates_of(monkeypatch, lambda: em.refit(tmp_path / "run", folder=tmp_path / "final"))
    assert repeated == rates[:12]
    assert em.load(tmp_path / "final").result.steps == 12


def test_plateaus_are_found_again_in_the_log():
    config = load_config({"optimizer": {"schedule": "plateau", "plateau_steps": 4}}, RunConfig)
    values = [0.3, 0.2, 0.1, 0.4, 0.1, 0.1, 0.1, 0.1, 0.5]
    history = [{"kind": "validation", "step": 2 * number, "map@r": value} for number, value in enumerate(values)]
    assert plateaus(config, history, 16) == [4, 10, 14]
    assert plateaus(config, history, 10) == [4, 10]
    assert plateaus(load_config({}, RunConfig), history, 16) == []


def test_queries_and_gallery_stay_for_the_test_and_go_with_all(tmp_path):
    labels = np.repeat(np.arange(12), 6)
    images = np.random.default_rng(0).integers(0, 256, (72, 1, 8, 8), dtype=np.uint8)
    split = np.where(labels < 8, "train", np.where(np.arange(72) % 3 == 0, "query", "gallery"))
    np.savez(tmp_path / "arrays.npz", images=images, labels=labels, split=split)
    values = {"data": {"name": "arrays", "options": {"file": str(tmp_path / "arrays.npz")}}}
    table = {"steps": 1, "source": "x"}
    config = load_config({**values, "refit": {**table, "classes": "training"}}, RunConfig)
    data = load_run_data(config.data, config.refit)
    assert len(data.split.train) == 48
    assert len(data.split.query) + len(data.split.gallery) == len(data.split.test) == 24
    config = load_config({**values, "refit": {**table, "classes": "all"}}, RunConfig)
    data = load_run_data(config.data, config.refit)
    assert torch.equal(data.split.train, torch.arange(72))
    assert data.split.query is data.split.gallery is None
    assert len(data.split.test) == len(data.split.validation) == 0


def test_a_cohort_of_validation_classes_becomes_one_of_training_classes(
    features, tmp_path, monkeypatch, script_validation
):
    config = configuration(features, evaluation={"cohort": {"part": "validation", "nearest": 5}})
    script_validation(monkeypatch, (0.1, 0.2, 0.5, 0.4, 0.3))
    em.train(config, folder=tmp_path / "run")
    assert refit_config(tmp_path / "run", "training").evaluation.cohort.part == "train"
    assert em.refit(tmp_path / "run", folder=tmp_path / "final").metrics


def test_a_final_model_keeps_the_cohort_that_validation_chose(features, tmp_path, monkeypatch, script_validation):
    config = configuration(features, evaluation={"cohort": {"strength": "auto", "form": "auto"}})
    script_validation(monkeypatch, (0.1, 0.2, 0.5, 0.4, 0.3))
    chosen = em.train(config, folder=tmp_path / "run").result.cohort
    cohort = refit_config(tmp_path / "run", "training").evaluation.cohort
    assert (cohort.part, cohort.strength, cohort.form) == ("train", chosen.strength, chosen.form)
    final = em.refit(tmp_path / "run", folder=tmp_path / "final").result
    assert (final.cohort.part, final.cohort.strength) == ("train", chosen.strength)
    assert final.cohort.tried == ()


def test_what_cannot_be_repeated_is_one_sentence(source, tmp_path):
    def rewrite(name, **changes):
        shutil.copytree(source, tmp_path / name)
        file = tmp_path / name / "result.json"
        values = {**json.loads(file.read_text()), **changes}
        del values["checksum"]
        file.write_text(json.dumps(values))
        return tmp_path / name

    for run, classes, message in (
        (source, "validation", "unknown classes of a final model 'validation'"),
        (tmp_path / "nothing", "all", "holds no finished training run"),
        (rewrite("baseline", steps=0, best_step=0), "all", "is a baseline, which takes no step"),
        (rewrite("useless", best_step=0), "all", "was best before its first step, so there is nothing to repeat"),
        (rewrite("final", role="refit"), "all", "is a final model already; give the run that it repeats"),
        (rewrite("failed", status="failed"), "all", "holds no finished training run"),
        (Path(__file__).parents[1] / "runs" / "old_runs" / "vectors", "all", "older version|before its first step"),
    ):
        with pytest.raises(EquimetricError, match=message):
            em.refit(run, classes=classes, folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()
