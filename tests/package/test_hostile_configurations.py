"""Configurations with endless numbers, NaN, NUL, odd names and deep brackets: one sentence each."""

import math
import os

import numpy as np
import pytest

from equimetric.configuration import load_config, parse_overrides, to_toml
from equimetric.errors import EquimetricError, quote
from equimetric.runs.configuration import RunConfig

DIGITS = "9" * 5000


def sentence_of(call, *arguments):
    with pytest.raises(EquimetricError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    message.encode("utf-8", errors="surrogateescape")
    return message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"seed = {DIGITS}".encode(), "is not valid TOML: a number has thousands of digits"),
        (f"optimizer.lr = {DIGITS}".encode(), "a number has thousands of digits"),
        (f"seed = {'9' * 4000}".encode(), "seed: a number of more than 200 digits is too large; whole numbers have"),
        (f"data.options.size = {2**63}".encode(), f"data: options: size: {2**63} is too large"),
        (f"optimizer.lr = {DIGITS}.0".encode(), "optimizer.lr: input should be a finite number, got inf"),
        (b"optimizer.lr = inf", "optimizer.lr: input should be a finite number, got inf"),
        (b"optimizer.lr = nan", "optimizer.lr: input should be a finite number, got nan"),
        (b"optimizer.weight_decay = inf", "optimizer.weight_decay: input should be a finite number, got inf"),
        (b"optimizer.groups.a.lr = -inf", "optimizer.groups.a.lr: input should be a finite number, got -inf"),
        (b"model.dropout = nan", "model.dropout: input should be a finite number, got nan"),
        (b"options.margin = nan", "options: margin must be a finite number, got nan"),
        (b"data.options.size = inf", "data.options: size must be a finite number, got inf"),
        (b"batch.options.margin = nan", "batch.options: margin must be a finite number, got nan"),
        (b"learner.options.a = { b = nan }", "learner.options: b must be a finite number, got nan"),
        (b"optimizer.lr = true", "optimizer.lr: input should be a valid number, got True"),
        (b"seed = true", "seed: input should be a valid integer, got True"),
        (b'method = "a\\u0000b"', "has a NUL"),
        (b'data.options.root = "caf\xe9"', "cannot be read: 'utf-8' codec can't decode"),
        (b"a = " + b"[" * 20_000, "its brackets are nested too deeply"),
        (b"seed = 1979-05-27", "seed: a configuration holds text, numbers, lists and tables, not date"),
        (b'method = "' + b"a" * 10**5 + b'"\nseed = "' + b"b" * 10**5 + b'"', "seed: input should be a valid integer"),
    ],
)
def test_hostile_files_are_one_sentence(tmp_path, content, message):
    file = tmp_path / "run.toml"
    file.write_bytes(content)
    assert message in sentence_of(load_config, file, RunConfig)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": 10**5000}, "seed: a number of more than 200 digits is too large"),
        ({"seed": -(10**5000)}, "seed: a number of more than 200 digits is too large"),
        ({"data": {"options": {"root": os.fsdecode(b"caf\xe9")}}}, "is no text in UTF-8"),
        ({"data": {"options": {os.fsdecode(b"caf\xe9"): 1}}}, "is no text in UTF-8"),
        ({"data": {"options": {"root": "a\0b"}}}, "data: options: root: 'a\\x00b' is no text in UTF-8, or has a NUL"),
        ({"options": {"margin": math.inf}}, "options: margin must be a finite number, got inf"),
        ({"options": {"margin": np.float64("nan")}}, "options: margin must be a finite number, got nan"),
        ({"optimizer": {"lr": np.inf}}, "optimizer.lr: input should be a finite number, got inf"),
        ({"options": {"margin": {1, 2}}}, "not set"),
    ],
)
def test_hostile_mappings_are_one_sentence(values, message):
    assert message in sentence_of(load_config, values, RunConfig)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", DIGITS], "is not a value: a number has thousands of digits"),
        ([f"--optimizer.lr={DIGITS}"], "is not a value: a number has thousands of digits"),
        (["--data.options.root", "[" * 20_000], "its brackets are nested too deeply"),
    ],
)
def test_hostile_overrides_are_one_sentence(arguments, message):
    assert message in sentence_of(parse_overrides, arguments)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--optimizer.lr", "inf"], "optimizer.lr: input should be a finite number, got inf"),
        (["--seed", "9" * 30], "seed: 999999999999999999999999999999 is too large"),
        (["--data.options.root", os.fsdecode(b"caf\xe9")], "data.options.root: 'caf\\udce9' is no text in UTF-8"),
    ],
)
def test_hostile_overrides_of_a_configuration(overrides, message):
    assert message in sentence_of(lambda: load_config({}, RunConfig, parse_overrides(overrides)))


@pytest.mark.parametrize("name", ["a" * 5000 + ".toml", "a\0b.toml"])
def test_paths_that_no_file_can_have(tmp_path, name):
    sentence_of(load_config, tmp_path / name, RunConfig)


def test_the_command_line_says_the_same(equimetric, tmp_path):
    for arguments in (
        ("train", tmp_path / ("a" * 5000 + ".toml")),
        ("datasets", "check", "a" * 5000),
        ("datasets", "check", tmp_path / ("a" * 5000)),
        ("datasets", "check", "folder", "--root", "a" * 5000),
        ("datasets", "check", "folder", "--root", os.fsdecode(b"caf\xe9")),
        ("datasets", "check", "folder", "--root", str(tmp_path), "--size", DIGITS),
        ("datasets", "check", "folder", "--root", str(tmp_path), "--size", "nan"),
    ):
        code, _, err = equimetric(*arguments)
        assert code == 2, arguments
        assert err.startswith("equimetric: ")
        assert len(err.splitlines()) == 1
        assert len(err) < 600


def test_never_may_still_be_written_as_inf():
    config = load_config({"model": {"freeze": {"backbone": math.inf}}}, RunConfig)
    assert config.model.freeze == {"backbone": math.inf}
    assert "inf" in to_toml(config)


def test_long_values_are_shown_without_their_middle():
    assert quote("short") == "'short'"
    assert quote(12) == "12"
    assert len(quote("x" * 10**6)) <= 202
    assert quote("x" * 10**6).startswith("'xxx")
    assert quote(10**4299) == quote(10**9999) == "a number of more than 200 digits"


def test_an_error_tells_the_first_problems_and_how_many_more_there_are():
    with pytest.raises(EquimetricError, match=r"unknown key 'a'.*'b'.*'c'.*; and 2 more$"):
        load_config({"method": "triplet", **dict.fromkeys("abcde", 1)}, RunConfig)
