"""Every look at the test classes of a run is counted, and changes nothing else."""

import json
import os

import pytest

from equimetric.runs.access_log import ACCESS_LOG, RecordedAccess, read_test_accesses, record_test_access
from equimetric.training import train


@pytest.fixture
def run(sources, tmp_path):
    train(sources["features"], folder=tmp_path / "run")
    return tmp_path / "run"


def commands(folder):
    return [access.command for access in read_test_accesses(folder)]


def test_the_own_test_is_the_first_access_and_writes_nothing(run):
    assert read_test_accesses(run) == (RecordedAccess("train"),)
    assert not (run / ACCESS_LOG).exists()


def test_commands_on_the_test_classes_are_recorded(run, equimetric):
    before = {file: file.read_bytes() for file in run.iterdir()}
    _, first, _ = equimetric("evaluate", run, "--json")
    equimetric("calibrate", run, "--far", "0.2")
    equimetric("identify", run, "--fpir", "0.2")
    equimetric("evaluate", run, "--compare", run)
    assert commands(run) == ["train", "evaluate", "calibrate", "identify", "evaluate", "evaluate"]
    assert all(len(access.date) == len("2026-01-31T12:00:00+00:00") for access in read_test_accesses(run)[1:])
    _, again, _ = equimetric("evaluate", run, "--json")
    assert first == again
    assert {file: file.read_bytes() for file in run.iterdir() if file.name != ACCESS_LOG} == before


@pytest.mark.parametrize("arguments", [["--part", "validation"], ["--part", "train"], ["--part", "tset"]])
def test_other_classes_are_not_recorded(run, equimetric, arguments):
    equimetric("evaluate", run, *arguments)
    assert commands(run) == ["train"]


def test_embeddings_of_a_file_are_not_recorded(run, features, equimetric):
    equimetric("evaluate", features)
    assert list(features.parent.glob(f"**/{ACCESS_LOG}")) == []


def test_a_folder_without_a_test_has_none(tmp_path):
    assert read_test_accesses(tmp_path) == read_test_accesses(tmp_path / "nowhere") == ()
    (tmp_path / "result.json").write_text("{")
    assert read_test_accesses(tmp_path) == ()


@pytest.mark.parametrize("torn", ['{"command": "evalu', '{"command": "evaluate"}', "[1]", "\x00\x00", '"text"'])
def test_a_torn_line_is_survived(tmp_path, torn):
    record_test_access(tmp_path, "evaluate")
    with (tmp_path / ACCESS_LOG).open("a") as file:
        file.write(torn)
    assert commands(tmp_path) == ["evaluate"]
    record_test_access(tmp_path, "calibrate")
    assert commands(tmp_path) == ["evaluate", "calibrate"]
    assert json.loads((tmp_path / ACCESS_LOG).read_text().splitlines()[-1])["command"] == "calibrate"


def test_a_folder_that_cannot_be_written_is_left_alone(run, equimetric, tmp_path):
    (run / ACCESS_LOG).mkdir()  # even the superuser cannot append to a folder
    code, _, err = equimetric("evaluate", run, "--json")
    assert (code, err) == (0, "")
    assert commands(run) == ["train"]
    record_test_access(tmp_path / "nowhere", "evaluate")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes everywhere")
def test_a_read_only_folder_is_left_alone(run, equimetric):
    run.chmod(0o500)
    code, _, err = equimetric("evaluate", run, "--json")
    assert (code, err) == (0, "")
    assert commands(run) == ["train"]
