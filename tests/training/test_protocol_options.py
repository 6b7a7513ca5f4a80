"""Averages, patience, plateaus, accumulation, freezing and formats in whole runs, also when they are killed."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from equimetric.backbones import EmbeddingNetwork
from equimetric.configuration import load_config
from equimetric.data import load_dataset
from equimetric.errors import EquimetricError
from equimetric.runs import evaluation
from equimetric.runs import folder as run_folder
from equimetric.runs.configuration import RunConfig
from equimetric.runs.model import load_run, load_weights
from equimetric.training import checkpoint, loop, train
from equimetric.training.averaging import averaged_weights, start_average, update_average
from equimetric.training.placement import Placement

BASE = {
    "method": "margin",
    "data": {"name": "digits"},
    "model": {"dim": 8},
    "batch": {"classes": 2, "samples": 4},
    "training": {"steps": 8, "validate_every": 2, "log_every": 1, "checkpoint_seconds": 0},
}
EVERYTHING = {
    **BASE,
    "model": {"dim": 8, "dropout": 0.2, "frozen_batch_norm": True, "freeze": {"backbone": 5}},
    "batch": {"classes": 2, "samples": 4, "per_step": 2, "at_once": 5},
    "optimizer": {
        "name": "rmsprop",
        "objective_name": "sgd",
        "objective_momentum": 0.5,
        "warmup_steps": 3,
        "schedule": "plateau",
        "plateau_steps": 2,
        "clip_norm": 1.0,
    },
    "training": {"steps": 14, "validate_every": 2, "log_every": 1, "ema": 0.9, "checkpoint_seconds": 0},
}


def log_of(folder, kind):
    lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def changed(config, **tables):
    return {**config, **{name: {**config.get(name, {}), **values} for name, values in tables.items()}}


def same_run(one, other):
    first, second = (load_weights(Path(folder) / "model.safetensors") for folder in (one, other))
    same = first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    losses = [[line["terms"] for line in log_of(folder, "train")] for folder in (one, other)]
    return same and losses[0] == losses[1] and log_of(one, "validation") == log_of(other, "validation")


def test_sigkill_at_a_random_step_with_everything_switched_on(tmp_path):
    # The weights that are kept may be early ones; the last losses and validations tell of the weights at the end.
    step = random.Random(os.urandom(4)).randrange(1, 14)
    code = f"""
import os, signal
from equimetric.training import train
def kill(step, figures):
    if step == {step}:
        os.kill(os.getpid(), signal.SIGKILL)
train({EVERYTHING!r}, folder={str(tmp_path / "killed")!r}, progress=kill)
"""
    process = subprocess.run([sys.executable, "-c", code], env=os.environ, check=False)
    assert process.returncode == -signal.SIGKILL, step
    train(EVERYTHING, folder=tmp_path / "killed")
    train(EVERYTHING, folder=tmp_path / "undisturbed")
    assert same_run(tmp_path / "killed", tmp_path / "undisturbed"), step


def test_the_average_is_evaluated_and_kept(tmp_path, monkeypatch):
    own, evaluated = [], []
    validate, embed_images = loop.validate, evaluation.embed_images

    def validated(session, log):
        own.append(session.learner.network.head.weight.detach().clone())
        validate(session, log)

    def embedded(learner, *given, **options):
        evaluated.append(learner.network.head.weight.detach().clone())
        return embed_images(learner, *given, **options)

    monkeypatch.setattr(loop, "validate", validated)
    monkeypatch.setattr(evaluation, "embed_images", embedded)
    trained = train(changed(BASE, training={"ema": 0.5, "steps": 1, "validate_every": 1}), folder=tmp_path)
    # Judged at the start, after the one step, and in the end on the test classes. After step 0 the decay is 1/10.
    start, after = own
    assert torch.equal(evaluated[0], start)
    torch.testing.assert_close(evaluated[1], 0.1 * start + 0.9 * after, rtol=1e-5, atol=1e-6)
    assert not torch.equal(evaluated[1], after)
    kept = load_weights(tmp_path / "model.safetensors")["network.head.weight"]
    assert torch.equal(kept, evaluated[trained.best_step])
    assert torch.equal(kept, evaluated[2])


def test_the_average_by_hand():
    learner = torch.nn.Linear(1, 1, bias=False)
    learner.weight.data.fill_(0.0)
    average = start_average(learner)
    learner.weight.data.fill_(1.0)
    update_average(average, learner, 0.999, 0)
    assert average["weight"].item() == pytest.approx(0.9)
    update_average(average, learner, 0.25, 50)
    assert average["weight"].item() == pytest.approx(0.975)
    with averaged_weights(learner, average):
        assert learner.weight.item() == pytest.approx(0.975)
    assert learner.weight.item() == 1.0
    with averaged_weights(learner, None):
        assert learner.weight.item() == 1.0


@pytest.fixture
def worse_and_worse(monkeypatch):
    """Validation is best at first and then falls."""
    evaluate, calls = evaluation.evaluate, []

    def falling(*given, **options):
        calls.append(1)
        scores = evaluate(*given, **options)
        if not options["neighbours"]:
            return {**scores, "map@r": 1 / len(calls)}
        return scores

    monkeypatch.setattr(evaluation, "evaluate", falling)


@pytest.mark.usefixtures("worse_and_worse")
def test_patience_stops_when_the_best_validation_lies_more_than_so_many_steps_back(tmp_path):
    trained = train(changed(BASE, training={"patience": 3}), folder=tmp_path)
    assert [line["step"] for line in log_of(tmp_path, "validation")] == [0, 2, 4]
    assert trained.best_step == 0
    assert json.loads((tmp_path / "result.json").read_text())["steps"] == 4


@pytest.mark.usefixtures("worse_and_worse")
def test_a_run_killed_after_its_patience_ended_does_not_go_on(tmp_path, monkeypatch):
    finish_run = loop.finish_run

    def killed(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "finish_run", killed)
    config = changed(BASE, training={"patience": 3})
    with pytest.raises(KeyboardInterrupt):
        train(config, folder=tmp_path)
    monkeypatch.setattr(loop, "finish_run", finish_run)
    train(config, folder=tmp_path)
    assert [line["step"] for line in log_of(tmp_path, "validation")] == [0, 2, 4]


@pytest.mark.usefixtures("worse_and_worse")
def test_a_plateau_lowers_the_rates(tmp_path, monkeypatch):
    rates = []
    set_rates = loop.set_learning_rates
    monkeypatch.setattr(
        loop, "set_learning_rates", lambda optimizer, factor: (rates.append(factor), set_rates(optimizer, factor))
    )
    config = changed(BASE, optimizer={"schedule": "plateau", "plateau_steps": 4, "decay": 0.5})
    train(changed(config, training={"steps": 10}), folder=tmp_path)
    # Validations at 0 (best), 2, 4 (four steps without a better one), 6, 8 (four steps at the lower rate).
    assert rates == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]


def test_several_batches_make_one_step_of_their_mean_gradient(tmp_path, monkeypatch):
    # Plain gradient descent moves the head by −lr times the mean of the gradients that each batch has at the start.
    plain = {"name": "sgd", "momentum": 0.0, "schedule": "constant", "lr": 0.1, "weight_decay": 0.0}
    config = changed(BASE, optimizer=plain, model={"frozen_batch_norm": True}, training={"steps": 1})
    config = changed(config, batch={"per_step": 3}) | {"method": "contrastive"}
    gradients = []
    backward = loop.backward

    def noted(trainable, *given, **options):
        head = trainable.learner.network.head.weight
        before = 0 if head.grad is None else head.grad.clone()
        terms = backward(trainable, *given, **options)
        gradients.append((head.grad - before) * 3)
        return terms

    monkeypatch.setattr(loop, "backward", noted)
    start = []
    validate = loop.validate
    monkeypatch.setattr(
        loop,
        "validate",
        lambda *given: (start.append(given[0].learner.network.head.weight.detach().clone()), validate(*given)),
    )
    train(config, folder=tmp_path)
    assert len(gradients) == 3
    assert not torch.equal(gradients[0], gradients[1])
    torch.testing.assert_close(start[1], start[0] - 0.1 * sum(gradients) / 3, rtol=1e-5, atol=1e-7)
    losses = log_of(tmp_path, "train")
    assert len(losses) == 1


def test_parts_of_the_network_wait_by_plan(tmp_path):
    config = changed(BASE, model={"freeze": {"backbone": 4}}, training={"ema": None})
    seen = {}

    def note(step, figures):
        seen[step] = load_weights(next(tmp_path.glob("checkpoint-*.safetensors")))

    train(config, folder=tmp_path, progress=note)
    name = "learner.network.backbone.blocks.0.weight"
    assert torch.equal(seen[2][name], seen[4][name])
    assert not torch.equal(seen[4][name], seen[6][name])
    assert not torch.equal(seen[2]["learner.network.head.weight"], seen[4]["learner.network.head.weight"])


@pytest.mark.parametrize(
    "training", [{"precision": "bfloat16"}, {"precision": "float64"}, {"channels_last": True}, {"device": "cpu"}]
)
def test_number_formats_and_layouts_train_and_load(tmp_path, training):
    trained = train(changed(BASE, training={**training, "steps": 4}), folder=tmp_path / "run")
    images = load_dataset("digits").images[:6]
    assert torch.equal(load_run(tmp_path / "run").embed(images), trained.embed(images))
    weight = trained.learner.network.head.weight
    assert weight.dtype == (torch.float64 if training.get("precision") == "float64" else torch.float32)


def test_a_missing_graphics_card_is_a_message(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = load_config(changed(BASE, training={"device": "cuda"}), RunConfig)
    with pytest.raises(EquimetricError, match="torch finds none; set it to 'auto' or 'cpu'"):
        Placement.from_config(config.training)
    assert Placement.from_config(config.training.model_copy(update={"device": "auto"})).device.type == "cpu"


def test_the_compile_switch_compiles_the_network_in_place(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(EmbeddingNetwork, "compile", lambda network: compiled.append(network))
    train(changed(BASE, training={"compile": True, "steps": 2}), folder=tmp_path)
    assert len(compiled) == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_is_a_message_and_nothing_finished_is_lost(tmp_path, monkeypatch, number):
    write = run_folder.write_atomically

    def failing(path, content, **how):
        if path.name == "checkpoint-00000004.safetensors":
            raise OSError(number, os.strerror(number))
        write(path, content, **how)

    monkeypatch.setattr(run_folder, "write_atomically", failing)
    why = "the disk is full" if number == errno.ENOSPC else "Permission denied"
    with pytest.raises(EquimetricError, match=f"cannot write to the run folder .*: {why}; nothing finished is lost"):
        train(BASE, folder=tmp_path / "full")
    assert json.loads((tmp_path / "full" / checkpoint.POINTER).read_text())["step"] == 2
    monkeypatch.setattr(run_folder, "write_atomically", write)
    train(BASE, folder=tmp_path / "full")
    train(BASE, folder=tmp_path / "undisturbed")
    assert same_run(tmp_path / "full", tmp_path / "undisturbed")


def test_figures_are_shown_at_every_step(tmp_path):
    shown = []
    train(
        changed(BASE, training={"log_every": 5}), folder=tmp_path, progress=lambda step, figures: shown.append(figures)
    )
    assert len(shown) == 8
    assert all(figures["loss"] == figures["margin"] >= 0 and figures["images/s"] > 0 for figures in shown)
    assert len({figures["loss"] for figures in shown}) > 2
