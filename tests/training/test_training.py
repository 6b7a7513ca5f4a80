import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.runs.model import load_run, load_weights
from equimetric.training import train

TINY = {
    "method": "multi_similarity_miner",
    "data": {"name": "digits", "transform": "affine"},
    "model": {"dim": 8},
    "batch": {"classes": 2, "samples": 8},
    "training": {"steps": 12, "validate_every": 4, "log_every": 2, "checkpoint_seconds": 0},
}


def result_of(folder):
    result = json.loads((Path(folder) / "result.json").read_text())
    # The checksums are of files that hold times.
    return {key: value for key, value in result.items() if key not in ("seconds", "memory", "checksum", "files")}


def log_of(folder):
    lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def same_weights(one, other):
    first, second = (load_weights(Path(folder) / "model.safetensors") for folder in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_leaves_everything_behind(tmp_path):
    trained = train(TINY, folder=tmp_path / "run")
    assert {file.name for file in (tmp_path / "run").iterdir()} == {
        ".lock",
        "config.toml",
        "environment.json",
        "metrics.jsonl",
        "model.safetensors",
        "per_query.npz",
        "result.json",
    }
    log = log_of(tmp_path / "run")
    assert [line["step"] for line in log if line["kind"] == "validation"] == [0, 4, 8, 12]
    assert [line["step"] for line in log if line["kind"] == "train"] == [2, 4, 6, 8, 10, 12]
    assert trained.metrics == result_of(tmp_path / "run")["metrics"]
    best = max((line for line in log if line["kind"] == "validation"), key=lambda line: line["map@r"])
    assert trained.best_step == best["step"]
    assert trained.validation["map@r"] == best["map@r"]


def test_the_best_weights_are_kept_not_the_last(tmp_path):
    # A rate that wrecks the network: the best weights are then those of the start.
    wrecked = {**TINY, "optimizer": {"lr": 50.0, "schedule": "constant", "name": "sgd"}, "method": "contrastive"}
    trained = train(wrecked, folder=tmp_path / "run")
    values = [line["map@r"] for line in log_of(tmp_path / "run") if line["kind"] == "validation"]
    assert trained.validation["map@r"] == max(values)
    assert trained.best_step == [0, 4, 8, 12][values.index(max(values))]


def test_a_loaded_run_embeds_as_the_trained_one(tmp_path):
    trained = train(TINY, folder=tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    images = em.load_dataset("digits").images[:20]
    assert torch.equal(loaded.embed(images), trained.embed(images))
    torch.testing.assert_close(loaded.embed(images).norm(dim=1), torch.ones(20))


def test_running_again_loads_the_finished_run(tmp_path):
    train(TINY, folder=tmp_path / "run")
    weights = (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns
    train(TINY, folder=tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns == weights


def test_another_configuration_does_not_write_over_a_run(tmp_path):
    train(TINY, folder=tmp_path / "run")
    with pytest.raises(EquimetricError, match="holds a run with another configuration"):
        train({**TINY, "seed": 1}, folder=tmp_path / "run")


@pytest.mark.parametrize(
    ("method", "optimizer"),
    [
        ("multi_similarity_miner", {}),
        ("margin", {}),
        ("arcface", {}),
        ("arcface", {"name": "adam", "objective_name": "sgd", "objective_lr": 0.1}),
        ("triplet_semihard+tcm", {}),
    ],
)
def test_resuming_gives_the_same_weights_bit_for_bit(tmp_path, method, optimizer):
    config = {**TINY, "method": method, "optimizer": optimizer}

    class KilledError(Exception):
        pass

    def kill(step, figures):
        if step == 7:
            raise KilledError

    train(config, folder=tmp_path / "undisturbed")
    with pytest.raises(KilledError):
        train(config, folder=tmp_path / "killed", progress=kill)
    assert (tmp_path / "killed" / "checkpoint.json").exists()
    train(config, folder=tmp_path / "killed")
    assert same_weights(tmp_path / "undisturbed", tmp_path / "killed")
    assert result_of(tmp_path / "undisturbed") == result_of(tmp_path / "killed")
    assert log_of(tmp_path / "undisturbed") == log_of(tmp_path / "killed")


def run_in_another_process(folder):
    code = f"from equimetric.training import train; train({TINY!r}, folder={str(folder)!r})"
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ)


def test_the_same_seed_gives_the_same_numbers_in_two_processes(tmp_path):
    processes = [run_in_another_process(tmp_path / name) for name in ("one", "two")]
    assert [process.wait() for process in processes] == [0, 0]
    assert same_weights(tmp_path / "one", tmp_path / "two")
    assert result_of(tmp_path / "one") == result_of(tmp_path / "two")
    train({**TINY, "seed": 1}, folder=tmp_path / "other")
    assert not same_weights(tmp_path / "one", tmp_path / "other")


def test_sigkill_loses_nothing_that_was_finished(tmp_path):
    long = {**TINY, "training": {"steps": 60, "validate_every": 5, "log_every": 5, "checkpoint_seconds": 0}}
    code = f"from equimetric.training import train; train({long!r}, folder={str(tmp_path / 'killed')!r})"
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ)
    pointer = tmp_path / "killed" / "checkpoint.json"
    while process.poll() is None and not (pointer.exists() and json.loads(pointer.read_text())["step"] >= 10):
        time.sleep(0.005)
    assert process.poll() is None, "the run ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "result.json").exists()
    train(long, folder=tmp_path / "killed")
    train(long, folder=tmp_path / "undisturbed")
    assert same_weights(tmp_path / "killed", tmp_path / "undisturbed")
    assert log_of(tmp_path / "killed") == log_of(tmp_path / "undisturbed")


def test_divergence_is_a_message(tmp_path):
    explosive = {
        **TINY,
        "optimizer": {"lr": 1e30, "name": "sgd", "schedule": "constant"},
        "method": "contrastive_cosine",
    }
    with pytest.raises(EquimetricError, match=r"'contrastive_cosine' of 'contrastive_cosine' became nan at step \d+"):
        train(explosive, folder=tmp_path / "run")


def test_all_methods_of_a_study_start_from_the_same_network():
    from equimetric.configuration import load_config
    from equimetric.runs.building import build_learner
    from equimetric.runs.configuration import RunConfig
    from equimetric.runs.result import DataShape

    shape = DataShape(channels=1, vectors=False, classes=5, images=10)
    networks = [
        build_learner(load_config({**TINY, "method": method}, RunConfig), shape).network.state_dict()
        for method in ("arcface", "contrastive")
    ]
    assert all(torch.equal(networks[0][name], networks[1][name]) for name in networks[0])


def test_more_classes_per_batch_than_there_are(tmp_path):
    with pytest.raises(EquimetricError, match="a batch of 32 classes cannot be drawn from 3"):
        train({**TINY, "batch": {"classes": 32, "samples": 4}}, folder=tmp_path / "run")


def test_an_unwritable_folder_is_a_message(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EquimetricError, match="cannot write to the run folder"):
        train(TINY, folder=tmp_path / "file" / "run")


def test_epochs_begin_after_validations_also_when_resumed(tmp_path, monkeypatch):
    from equimetric.learners import SingleObjectiveLearner

    begun = []

    def on_epoch(learner, view):
        assert view.embeddings() is view.embeddings(), "computed once for all that look at it"
        begun.append((*view.embeddings().shape, len(view.labels)))

    class KilledError(Exception):
        pass

    def kill(step, figures):
        if step == 6:
            raise KilledError

    monkeypatch.setattr(SingleObjectiveLearner, "on_epoch", on_epoch)
    with pytest.raises(KilledError):
        train(TINY, folder=tmp_path / "run", progress=kill)
    assert len(begun) == 2
    train(TINY, folder=tmp_path / "run")
    # Steps 4 and 8 after the checkpoint of step 4.
    assert len(begun) == 4
    images = sum(label < 3 for label in em.load_dataset("digits").labels.tolist())
    assert set(begun) == {(images, 8, images)}


def test_class_weights_train_and_values_of_queries_do_not(tmp_path):
    weighted = {**TINY, "method": "contrastive", "options": {"class_weight": [1.0, 5.0, 0.0]}}
    train(weighted, folder=tmp_path / "weighted")
    train({**weighted, "options": {}}, folder=tmp_path / "plain")
    assert log_of(tmp_path / "weighted") != log_of(tmp_path / "plain")
    with pytest.raises(EquimetricError, match="one number; choose reduction='mean'"):
        train({**weighted, "options": {"reduction": "query"}}, folder=tmp_path / "query")


class KilledError(Exception):
    """Stands for a kill."""


def kill_at(last):
    def progress(step, figures):
        if step == last:
            raise KilledError

    return progress


def saved_steps(monkeypatch, config, folder):
    """The steps at which a run writes checkpoints."""
    from equimetric.training import session

    saved, save = [], session.save_checkpoint
    with monkeypatch.context() as patch:
        patch.setattr(
            session, "save_checkpoint", lambda run, state, *given: saved.append(state.step) or save(run, state, *given)
        )
        train(config, folder=folder)
    return saved


def test_checkpoints_are_saved_at_validations_that_are_seconds_apart(tmp_path, monkeypatch):
    from equimetric.training import checkpoint, session

    assert saved_steps(monkeypatch, TINY, tmp_path / "each") == [0, 4, 8, 12]
    usual = {**TINY, "training": {**TINY["training"], "checkpoint_seconds": 10.0}}
    assert saved_steps(monkeypatch, usual, tmp_path / "none") == []
    clock = iter(range(0, 1000, 6))

    class Time:
        monotonic = staticmethod(lambda: next(clock))
        perf_counter = staticmethod(time.perf_counter)

    for module in (checkpoint, session):
        monkeypatch.setattr(module, "time", Time)
    # The clock moves by six seconds with every look at it: at the start, at each validation, and when saved.
    assert saved_steps(monkeypatch, usual, tmp_path / "some") == [4, 12]
    assert same_weights(tmp_path / "each", tmp_path / "none")
    assert log_of(tmp_path / "each") == log_of(tmp_path / "some")


def test_a_run_that_was_killed_before_a_checkpoint_starts_again(tmp_path):
    usual = {**TINY, "training": {**TINY["training"], "checkpoint_seconds": 10.0}}
    with pytest.raises(KilledError):
        train(usual, folder=tmp_path / "killed", progress=kill_at(7))
    left = {file.name for file in (tmp_path / "killed").iterdir()}
    assert left == {".lock", "config.toml", "environment.json", "metrics.jsonl"}, "the log says how far it came"
    train(usual, folder=tmp_path / "killed")
    train(TINY, folder=tmp_path / "undisturbed")
    assert same_weights(tmp_path / "undisturbed", tmp_path / "killed")
    assert log_of(tmp_path / "undisturbed") == log_of(tmp_path / "killed")
    assert result_of(tmp_path / "undisturbed") == result_of(tmp_path / "killed")


def test_the_start_of_another_run_does_not_block_a_folder(tmp_path):
    usual = {**TINY, "training": {**TINY["training"], "checkpoint_seconds": 10.0}}
    with pytest.raises(KilledError):
        train(usual, folder=tmp_path / "run", progress=kill_at(7))
    (tmp_path / "run" / "environment.json").write_text("half")
    assert train({**usual, "seed": 1}, folder=tmp_path / "run").config.seed == 1
