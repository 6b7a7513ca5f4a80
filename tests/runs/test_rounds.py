"""Runs of successive rounds, each starting with the network of the one before."""

import json

import numpy as np
import pytest
import torch
from run_cases import configuration

import equimetric as em
from equimetric.configuration import load_config
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import load_run_data
from equimetric.runs.evaluation import embed_run, evaluate_part
from equimetric.runs.model import load_weights
from equimetric.runs.rounds import evaluate_rounds
from equimetric.training import train


@pytest.fixture
def space(tmp_path):
    """Twenty-four classes of eight feature vectors."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(24), 8)
    vectors = generator.normal(size=(24, 20))[labels] + 0.8 * generator.normal(size=(len(labels), 20))
    np.savez(tmp_path / "space.npz", features=vectors.astype(np.float32), labels=labels)
    return {"name": "features", "options": {"file": str(tmp_path / "space.npz")}}


def round_config(space, number, start=None, **tables):
    rounds = {"of": 2, "number": number, "keep": "latest"}
    config = configuration({**space, "rounds": rounds}, **tables)
    return {**config, "model": {**config["model"], "start": start}, "method": "arcface"}


def test_round_after_round(space, tmp_path):
    folders = [tmp_path / "first", tmp_path / "second"]
    first = train(round_config(space, 1), folder=folders[0])
    second = train(round_config(space, 2, str(folders[0])), folder=folders[1])
    data = [load_run_data(model.config.data) for model in (first, second)]
    trained = [set(one.dataset.labels[one.split.train].tolist()) for one in data]
    assert trained == [set(range(4)), set(range(4, 9))]
    table = evaluate_rounds(folders)
    assert table.metric == "map@r"
    assert table.test == (first.metrics["map@r"], second.metrics["map@r"])
    for number, folder in enumerate(folders):
        for part in range(number + 1):
            config, found = embed_run(folder, f"round{part + 1}")
            assert set(found.labels.tolist()) == trained[part]
            assert not set(found.rows.tolist()) & set(data[number].split.train.tolist())
            assert table.classes.values[number, part] == evaluate_part(found, config.evaluation)["map@r"]
    assert "forgetting" in str(table)
    with pytest.raises(em.EquimetricError, match="give the runs of round 1, 2, … in their order"):
        evaluate_rounds(folders[::-1])
    with pytest.raises(em.EquimetricError, match="does not report 'nmi'"):
        evaluate_rounds(folders, "nmi")


def test_a_run_starts_with_the_network_of_another_and_an_objective_of_its_own(space, tmp_path):
    train(round_config(space, 1), folder=tmp_path / "first")
    weights = load_weights(tmp_path / "first" / "model.safetensors")
    config = load_config(round_config(space, 2, str(tmp_path / "first")), RunConfig)
    learner = build_learner(config, load_run_data(config.data).shape)
    state = learner.state_dict()
    assert torch.equal(state["network.head.weight"], weights["network.head.weight"])
    proxies = [name for name in state if name.startswith("objective.")]
    assert proxies
    assert any(state[name].shape != weights[name].shape for name in proxies)


def test_the_log_of_a_run_begins_with_the_network_it_starts_with(space, tmp_path):
    """At step 0 the validation classes have the figures that they have with the other run's weights."""
    train(round_config(space, 1, training={"steps": 20}), folder=tmp_path / "first")
    train(round_config(space, 2, str(tmp_path / "first")), folder=tmp_path / "second")
    lines = (tmp_path / "second" / "metrics.jsonl").read_text().splitlines()
    start = next(line for line in map(json.loads, lines) if line["kind"] == "validation")
    config, found = embed_run(tmp_path / "first", "validation")
    assert start["step"] == 0
    assert start["map@r"] == evaluate_part(found, config.evaluation)["map@r"]
    assert em.load(tmp_path / "second").metrics  # the folder of the first run is not needed


def test_what_the_other_run_has_seen_must_not_be_tested_here(space, tmp_path):
    train(configuration(space), folder=tmp_path / "run")
    start = {"start": str(tmp_path / "run")}
    train(configuration(space, model=start), folder=tmp_path / "again")
    for data, key in (
        ({**space, "fold": 1}, "data.fold"),
        ({**space, "split_seed": 3}, "data.split_seed"),
        ({**space, "rounds": {"of": 2, "number": 1}}, "data.rounds"),
    ):
        with pytest.raises(em.EquimetricError, match=f"was trained with another {key}, so what it has seen may be"):
            train(configuration(data, model=start), folder=tmp_path / "other")


def test_networks_that_do_not_fit_are_named(space, tmp_path):
    train(configuration(space), folder=tmp_path / "run")
    with pytest.raises(
        em.EquimetricError, match=r"does not fit: network.head.weight of shape \(7, 20\), where that run"
    ):
        train(configuration(space, model={"start": str(tmp_path / "run"), "dim": 7}), folder=tmp_path / "other")
    with pytest.raises(em.EquimetricError, match=r"model.start = .*nowhere' holds no finished training run"):
        train(configuration(space, model={"start": str(tmp_path / "nowhere")}), folder=tmp_path / "other")
