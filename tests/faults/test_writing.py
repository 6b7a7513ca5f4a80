"""A disk that is full: the study stops and says so, no run is stored as failed, and the same command goes on."""

import errno
import json
import os
import re
from dataclasses import replace

import pytest
from study_cases import contents, left_behind, processes_of, run, start, wait_until, write_study

import equimetric as em
from equimetric.errors import StorageError
from equimetric.studies.comparison import open_plan
from equimetric.studies.engines.local import LocalEngine
from equimetric.studies.jobs import run_job
from equimetric.studies.worker import execute

FULL = """
import errno, os, pathlib

fsync, full = os.fsync, pathlib.Path(__file__).with_name("full")

def failing(descriptor):
    if full.exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    fsync(descriptor)

os.fsync = failing
"""
"""Imported by every interpreter that starts with its folder on the path."""


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """`disk.touch()` makes writing fail in all processes of a study, `disk.unlink()` ends that."""
    folder = tmp_path / "disk"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(FULL)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]))
    return folder / "full"


@pytest.mark.slow
def test_a_study_on_a_full_disk_stops_and_goes_on_once_there_is_space(disk, tmp_path):
    study = write_study(tmp_path)
    process = start(study, tmp_path / "runs")
    folder = tmp_path / "runs" / "small"
    assert wait_until(lambda: list(folder.glob("contrastive/*/checkpoint.json")))
    disk.touch()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    last = err.splitlines()[-1]
    assert re.match(r"equimetric: cannot write to .* the disk is full; nothing finished is lost: .*", last), err
    assert re.search(r"\d of 6 runs are finished\)$", last)
    assert "Traceback" not in err
    assert wait_until(lambda: not processes_of(process.pid), 20)
    results = [json.loads(file.read_text())["status"] for file in folder.rglob("result.json")]
    assert len(results) < 6
    assert set(results) <= {"done"}
    disk.unlink()
    again = run(study, tmp_path / "runs")
    assert again.returncode == 0, again.stderr
    assert "runs are done" in again.stderr or "continues at step" in again.stderr
    assert run(study, tmp_path / "other").returncode == 0
    assert contents(folder) == contents(tmp_path / "other" / "small")
    assert left_behind(folder) == []


@pytest.fixture
def job(tmp_path):
    plan = open_plan(write_study(tmp_path), output=tmp_path / "runs")
    return next(job for job in plan.known_jobs() if job.row == "contrastive")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_write_error_is_not_the_failure_of_a_run(job, number, monkeypatch, tmp_path):
    fsync, synced, messages = os.fsync, [], []

    def failing(descriptor):
        synced.append(descriptor)
        if len(synced) >= 4:
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    execute(job.to_json(), messages.append)
    assert len(synced) >= 4
    message = messages[-1]["cannot_write"]
    assert "cannot write to the run folder" in message
    assert "run the same command again" in message
    assert not (job.folder / "result.json").exists()
    monkeypatch.undo()
    execute(job.to_json(), messages.append)
    assert messages[-1]["outcome"]["status"] == "done"
    other = replace(job, folder=tmp_path / "other" / job.row / job.folder.name)
    execute(other.to_json(), messages.append)
    assert contents(job.folder.parents[1]) == contents(tmp_path / "other")
    assert left_behind(tmp_path / "runs") == []


def test_a_full_disk_that_another_library_meets_is_no_failure_either(job, monkeypatch):
    def fail(*_, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/cache/file")

    monkeypatch.setattr("equimetric.studies.jobs.train", fail)
    with pytest.raises(StorageError, match=r"cannot write /cache/file: No space left on device; nothing finished is"):
        run_job(job)
    assert not job.folder.exists()


def test_other_errors_are_failures(job, monkeypatch):
    def fail(*_, **options):
        raise FileNotFoundError(errno.ENOENT, "no such file", "weights.pth")

    monkeypatch.setattr("equimetric.studies.jobs.train", fail)
    run_job(job)
    assert json.loads((job.folder / "result.json").read_text())["status"] == "failed"


def test_a_study_that_cannot_be_written_is_one_sentence_before_anything_else(tmp_path, monkeypatch):
    study = write_study(tmp_path)
    (tmp_path / "features.npz").unlink()
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write to the study folder '.*': '.*file' is not a folder; choose"):
        em.compare(study, output=tmp_path / "file")
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(StorageError, match=r"cannot write to the study folder '.*': '.*' is write-protected"):
        em.compare(study, output=tmp_path / "runs")


@pytest.mark.slow
def test_a_worker_that_dies_leaves_the_rest_to_the_others(tmp_path, monkeypatch):
    """Its run is named, the others are done, and the same command does what is left."""
    study, killed = write_study(tmp_path), []
    start = LocalEngine.start

    def kill_first(engine, job):
        start(engine, job)
        if job.row == "contrastive" and not killed:
            killed.append((job.row, job.config.seed))
            next(worker for worker in engine.workers if worker.job is job).process.kill()

    monkeypatch.setattr(LocalEngine, "start", kill_first)
    with pytest.raises(em.EquimetricError, match=r"the process of run 'contrastive', seed 0, ended without a result"):
        em.compare(study, output=tmp_path / "runs")
    assert len(list((tmp_path / "runs").rglob("result.json"))) == 5
    missing = []
    em.compare(
        study,
        output=tmp_path / "runs",
        begin=lambda plan: missing.extend(job for row in plan.rows for job in plan.ready_jobs(row)),
    )
    assert [(job.row, job.config.seed) for job in missing] == killed
