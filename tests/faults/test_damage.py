"""A stored file that is not what was written: noticed when it is read, with the way out, or regenerated."""

import json
import re
import shutil
import warnings

import pytest
from file_events import CrashError, Fault
from run_faults import TINY, content_of, run_with

import equimetric as em
from equimetric.errors import DamagedFileError
from equimetric.files import write_atomically
from equimetric.runs.folder import RunFolder
from equimetric.studies import load_study
from equimetric.studies.index import StudyIndex
from equimetric.training import train

STORED = ("config.toml", "environment.json", "metrics.jsonl", "model.safetensors", "per_query.npz", "result.json")
REMEDY = "run it again|run the same command again|run the command that trained it again"
STUDY = {
    "name": "tiny",
    "workers": 1,
    "data": {"name": "digits"},
    "model": {"dim": 4},
    "batch": {"classes": 2, "samples": 2},
    "training": {"steps": 2, "validate_every": 2, "log_every": 2},
    "baselines": [],
    "methods": {"contrastive": {}, "margin": {}},
}


def damages(content, flips):
    """What becomes of a file: bits flipped all over it, its end or half of it missing, nothing left."""
    for number in range(flips):
        place = number * (len(content) - 1) // (flips - 1)
        flipped = bytearray(content)
        flipped[place] ^= 1 << (number % 8)
        yield f"bit {number % 8} of byte {place}", bytes(flipped)
    yield "last byte missing", content[:-1]
    yield "half missing", content[: len(content) // 2]
    yield "ten bytes left", content[:10]
    yield "empty", b""


def read_all(folder):
    """Everything that is read of a finished run."""
    run = RunFolder(folder)
    model = em.load(folder)
    weights = {name: tensor.tolist() for name, tensor in model.learner.state_dict().items()}
    per_query = {name: array.tolist() for name, array in run.per_query().items()}
    return model.config, model.result, weights, per_query, run.history(), run.environment()


def check_reading(file, flips, read, way_out):
    """Damage raises an error that names the file and the way out.

    A flipped bit of the word "sha256" itself does not: the file counts as one of an older version, and it is whole.
    """
    intact, noticed = read(), 0
    for what, damaged in damages(file.read_bytes(), flips):
        file.write_bytes(damaged)
        found, error = read_or_error(read)
        if error is None:
            assert found == intact, what
        else:
            noticed += 1
            assert str(file) in error, what
            assert re.search(way_out, error), what
    assert noticed >= 0.95 * (flips + 4)


def read_or_error(read):
    try:
        return read(), None
    except DamagedFileError as error:
        return None, str(error)


@pytest.fixture
def finished(undisturbed, tmp_path):
    shutil.copytree(undisturbed[0], tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("flips", [8, pytest.param(300, marks=pytest.mark.slow)])
def test_damage_of_a_finished_run_is_noticed_when_it_is_read(finished, name, flips):
    check_reading(finished / name, flips, lambda: read_all(finished), REMEDY)


@pytest.mark.parametrize("name", ["config.toml", "model.safetensors", "result.json"])
def test_the_same_command_regenerates_what_is_damaged(undisturbed, finished, name):
    content = (finished / name).read_bytes()
    (finished / name).write_bytes(content[: len(content) // 2])
    again = "it is written again" if name == "config.toml" else "the run is trained again"
    with pytest.warns(UserWarning, match=rf"{name} is damaged .*; {again}"):
        train(TINY, folder=finished)
    assert content_of(finished) == undisturbed[1]


def test_a_damaged_environment_does_not_lose_the_run(finished):
    """Whose run it is is unknown then, so nothing is overwritten."""
    (finished / "environment.json").write_text("{")
    before = (finished / "model.safetensors").read_bytes()
    with pytest.raises(DamagedFileError, match=r"environment\.json is damaged .*; remove the run's folder and run it"):
        train(TINY, folder=finished)
    assert (finished / "model.safetensors").read_bytes() == before


@pytest.fixture
def unfinished(undisturbed, tmp_path):
    """A run that was killed after its second checkpoint."""
    events = undisturbed[2]
    second = [number for number, event in enumerate(events) if event == ("rename", "checkpoint.json")][1]
    run_with(Fault(second + 4, CrashError(), lasting=True), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "checkpoint.json").read_text())["step"] == 2
    return tmp_path / "run"


def damage_and_resume(folder, name, content, expected):
    """Resume with a damaged file; the warnings."""
    shutil.copytree(folder, folder.with_name("damaged"))
    file = folder.with_name("damaged") / name
    file.write_bytes(content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(TINY, folder=file.parent)
    assert content_of(file.parent) == expected
    shutil.rmtree(file.parent)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("name", ["checkpoint.json", "checkpoint-00000002.safetensors"])
@pytest.mark.parametrize("flips", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_a_damaged_checkpoint_starts_the_run_again(undisturbed, unfinished, name, flips):
    for what, damaged in list(damages((unfinished / name).read_bytes(), flips))[: flips + 4 if flips > 2 else 2]:
        (message,) = damage_and_resume(unfinished, name, damaged, undisturbed[1])
        assert f"{name} is damaged" in message, what
        assert "the run starts again at step 0, and ends with the same result" in message


@pytest.mark.parametrize("name", ["config.toml", "model.safetensors"])
def test_what_an_unfinished_run_does_not_read_is_written_again(undisturbed, unfinished, name):
    assert damage_and_resume(unfinished, name, b"damaged", undisturbed[1]) == []


def test_a_short_log_is_cut_at_a_whole_line(undisturbed, unfinished):
    log = unfinished / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:2]) + lines[2][:10])
    with pytest.warns(UserWarning, match=r"metrics\.jsonl is damaged: lines are missing or changed; the run resumes"):
        train(TINY, folder=unfinished)
    assert b"\0" not in log.read_bytes()
    whole = undisturbed[1]["metrics.jsonl"]
    assert [line["step"] for line in RunFolder(unfinished).history()] == [
        line["step"] for line in whole[:2] + whole[4:]
    ]
    assert {**content_of(unfinished), "metrics.jsonl": whole} == undisturbed[1]


def test_a_changed_line_of_the_log_is_noticed(unfinished):
    log = unfinished / "metrics.jsonl"
    log.write_bytes(log.read_bytes().replace(b"1", b"2", 1))
    with pytest.warns(UserWarning, match=r"metrics\.jsonl is damaged"):
        train(TINY, folder=unfinished)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    em.compare(STUDY, output=folder)
    return folder / "tiny"


def read_study(folder):
    record = load_study(folder)
    return record.conditions, [(run.method, run.metrics) for run in record.runs]


@pytest.mark.parametrize("name", ["study.toml", "data.json"])
@pytest.mark.parametrize("flips", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_damage_of_a_study_is_noticed_and_mended_by_the_same_command(study, tmp_path, name, flips):
    shutil.copytree(study, tmp_path / "tiny")
    intact = read_study(tmp_path / "tiny")
    way_out = "run `equimetric compare` with the study's file again: it keeps the finished runs"
    check_reading(tmp_path / "tiny" / name, flips, lambda: read_study(tmp_path / "tiny"), way_out)
    weights = [path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")]
    em.compare(STUDY, output=tmp_path)
    assert read_study(tmp_path / "tiny") == intact
    assert [path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")] == weights


@pytest.mark.parametrize("flips", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_damage_of_an_index_is_a_warning_and_mended_by_the_same_command(study, tmp_path, flips):
    shutil.copytree(study, tmp_path / "tiny")
    intact = read_study(tmp_path / "tiny")
    file = tmp_path / "tiny" / "index.jsonl"
    content = file.read_bytes()
    for place in range(0, len(content), len(content) // flips):
        file.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        with pytest.warns(UserWarning, match=r"index\.jsonl is damaged in . of \d+ lines.*it keeps the finished runs"):
            StudyIndex(tmp_path / "tiny")
        weights = [path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")]
        with pytest.warns(UserWarning, match="is damaged in"):
            em.compare(STUDY, output=tmp_path)
        assert sorted(read_study(tmp_path / "tiny")[1], key=str) == sorted(intact[1], key=str)
        assert [path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")] == weights


def test_the_next_start_of_a_study_sweeps_what_killed_writers_left(study, tmp_path):
    shutil.copytree(study, tmp_path / "tiny")
    run = next((tmp_path / "tiny").glob("margin/*"))
    for left in (tmp_path / "tiny" / ".index.jsonl.abcd_123", run / ".result.json.12345678"):
        left.write_text("half")
    (run / ".notes").write_text("not ours")
    em.compare(STUDY, output=tmp_path)
    assert not [file for file in tmp_path.rglob(".*.????????") if file.is_file()]
    assert (run / ".notes").exists()


def test_checkpoints_go_where_a_run_was_killed_after_its_result(study, tmp_path):
    shutil.copytree(study, tmp_path / "tiny")
    file = tmp_path / "tiny" / "index.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if '"outcome":' not in line))
    run = next((tmp_path / "tiny").glob("margin/*"))
    for name in ("checkpoint-00000004.safetensors", "checkpoint.json"):
        (run / name).write_text("left")
    em.compare(STUDY, output=tmp_path)
    assert not list(run.glob("checkpoint*"))
    assert read_study(tmp_path / "tiny") == read_study(study)


def test_files_of_older_versions_have_no_checksum_and_are_read(finished):
    """They are as the files now, without the checksums."""
    expected = read_all(finished)
    for name in ("result.json", "environment.json"):
        values = json.loads((finished / name).read_text())
        values = {key: value for key, value in values.items() if key not in ("checksum", "files")}
        write_atomically(finished / name, json.dumps(values))
    text = (finished / "config.toml").read_text()
    assert text.startswith("# checksum sha256:")
    write_atomically(finished / "config.toml", text.partition("\n")[2])
    assert read_all(finished) == expected
