import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from equimetric.configuration import load_config, parse_overrides, to_toml
from equimetric.errors import EquimetricError
from equimetric.runs.configuration import RunConfig
from equimetric.studies.configuration import StudyConfig

STUDY = {"name": "s", "methods": {"contrastive": {}}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"optimzer": {}}, "unknown key 'optimzer'; did you mean 'optimizer'"),
        ({"optimizer": {"weightdecay": 1.0}}, "unknown key 'optimizer.weightdecay'; did you mean 'weight_decay'"),
        ({"optimizer": {"lr": "fast"}}, "optimizer.lr: input should be a valid number, got 'fast'"),
        ({"optimizer": {"lr": -1.0}}, "optimizer.lr: input should be greater than 0"),
        ({"optimizer": {"name": "adagrad"}}, "optimizer.name: input should be 'adamw', 'adam', 'rmsprop' or 'sgd'"),
        ({"training": {"steps": 0}}, "training.steps: input should be greater than or equal to 1"),
        ({"data": {"crop_to_box": True}}, r"unknown key 'data.crop_to_box'; .* stand in data.options"),
        ({"seed": "1"}, "seed: input should be a valid integer"),
    ],
)
def test_a_wrong_run_configuration_is_one_sentence(values, message):
    with pytest.raises(EquimetricError, match=message):
        load_config(values, RunConfig)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"methods": {"a": {}}}, "the key 'name' is missing"),
        ({**STUDY, "name": "../up"}, "cannot be a folder name"),
        ({**STUDY, "seeds": [1, 1]}, "seeds must be different"),
        ({**STUDY, "methods": {}}, "methods has 0 entries; give at least 1"),
        ({**STUDY, "methods": {"untrained": {}}}, "names a baseline"),
        ({**STUDY, "methods": {"a/b": {}}}, "cannot be a folder name"),
        ({**STUDY, "methods": {"a": {"optoins": {}}}}, "unknown key 'methods.a.optoins'; did you mean 'options'"),
        ({**STUDY, "methods": {"a": {"model": {"dim": 9}}}}, "'model' may not differ between methods"),
        ({**STUDY, "methods": {"a": {"training": {"steps": 9}}}}, "the comparison would be unfair"),
    ],
)
def test_a_wrong_or_unfair_study_is_one_sentence(values, message):
    with pytest.raises(EquimetricError, match=message):
        load_config(values, StudyConfig)


def test_missing_and_broken_files(tmp_path):
    with pytest.raises(EquimetricError, match="there is no configuration file"):
        load_config(tmp_path / "none.toml", RunConfig)
    broken = tmp_path / "broken.toml"
    broken.write_text("seed = ")
    with pytest.raises(EquimetricError, match="not valid TOML"):
        load_config(broken, RunConfig)
    misspelt = tmp_path / "misspelt.toml"
    misspelt.write_text("sed = 1")
    with pytest.raises(EquimetricError, match=r"misspelt\.toml: unknown key 'sed'; did you mean 'seed'"):
        load_config(misspelt, RunConfig)


def test_overrides_are_read_as_toml():
    overrides = parse_overrides(["--optimizer.lr", "1e-5", "--seed=3", "--method", "margin", "--options.nu", "0.1"])
    assert overrides == {"optimizer.lr": 1e-5, "seed": 3, "method": "margin", "options.nu": 0.1}
    config = load_config({}, RunConfig, overrides)
    assert (config.optimizer.lr, config.seed, config.method, config.options) == (1e-5, 3, "margin", {"nu": 0.1})


@pytest.mark.parametrize("arguments", [["optimizer.lr", "1"], ["--seed"], ["--"]])
def test_unreadable_overrides_are_refused(arguments):
    with pytest.raises(EquimetricError):
        parse_overrides(arguments)


def test_an_override_of_an_unknown_key_is_refused():
    with pytest.raises(EquimetricError, match=r"unknown key 'optimizer\.lrr'; did you mean 'lr'"):
        load_config({}, RunConfig, {"optimizer.lrr": 1.0})
    with pytest.raises(EquimetricError, match="'seed' is a value, not a table"):
        load_config({"seed": 1}, RunConfig, {"seed.x": 1})


def test_round_trip_through_toml():
    config = load_config({"method": "margin", "options": {"nu": 0.1}, "data": {"options": {"size": 8}}}, RunConfig)
    assert load_config(tomllib.loads(to_toml(config)), RunConfig) == config
    staged = load_config({"model": {"freeze": {"backbone": float("inf"), "backbone.b": 500}}}, RunConfig)
    assert load_config(tomllib.loads(to_toml(staged)), RunConfig) == staged
    study = load_config({**STUDY, "methods": {"a": {"objective_lr": 0.5}, "b": {}}}, StudyConfig)
    assert load_config(tomllib.loads(to_toml(study)), StudyConfig) == study


def test_paths_and_numbers_of_other_libraries_are_plain_values():
    config = load_config(
        {"seed": np.int64(3), "data": {"options": {"root": Path("images")}}, "optimizer": {"lr": torch.tensor(0.5)}},
        RunConfig,
    )
    assert (config.seed, config.data.options, config.optimizer.lr) == (3, {"root": "images"}, 0.5)
    with pytest.raises(EquimetricError, match="holds text, numbers, lists and tables, not object"):
        load_config({"data": {"options": {"root": object()}}}, RunConfig)


def test_groups_of_parameters_are_checked_as_the_network_is():
    for group, message in (
        ({"name": "adam", "momentum": 0.5}, r"'adam' has no momentum to set; leave groups\.x\.momentum out"),
        ({"name": "sgd", "eps": 1e-5}, r"'sgd' has no eps; leave groups\.x\.eps out"),
    ):
        with pytest.raises(EquimetricError, match=message):
            load_config({"optimizer": {"groups": {"x": group}}}, RunConfig)
