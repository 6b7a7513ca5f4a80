"""How a study deals with its workers: stand-ins that speak the protocol and need no torch."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from study_plans import plan_of

from equimetric.errors import EquimetricError, StorageError
from equimetric.stopping import Stopped, stop_on_signals
from equimetric.studies import comparison
from equimetric.studies.engines import local, open_engine
from equimetric.studies.schedule import execute_plan

WORKER = """
import json, os, signal, sys, time
from pathlib import Path

def stop(number, frame):
    Path(sys.argv[1], f"stopped{os.getpid()}").touch()
    os._exit(143)

signal.signal(signal.SIGTERM, stop)
for line in sys.stdin:
    job = json.loads(line)
    seed = job["config"]["seed"]
    Path(sys.argv[1], f"begun{seed}").touch()
    CASE
    print(json.dumps({"step": 5, "metrics": {"loss": 0.5}}), flush=True)
    print(json.dumps({"outcome": {"key": job["key"], "status": "done"}}), flush=True)
"""

WAITS = "time.sleep(60)"
IGNORES = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
FULL = """if seed == 0:
        print(json.dumps({"cannot_write": "the disk is full"}), flush=True)
        continue
    time.sleep(60)"""
NOTES = FULL.replace("time.sleep(60)", "signal.signal(signal.SIGTERM, lambda *_: None); time.sleep(1)")
DIES = "os._exit(1) if seed == 0 else None"
SAYS = 'print(json.dumps({"notice": f"seed {seed} waits"}), flush=True)'

STUDY = {"name": "study", "seeds": [0, 1, 2, 3], "baselines": [], "methods": {"contrastive": {}}}


@pytest.fixture
def plan(tmp_path):
    return plan_of(STUDY, tmp_path / "runs")


def run_all(plan, watch=lambda *_: None):
    with open_engine("local", 2) as engine:
        execute_plan(plan, engine, watch)


@pytest.fixture
def workers(tmp_path, monkeypatch):
    """Workers that do as a case says; the processes that were started."""
    started = []
    popen = subprocess.Popen

    def use(case):
        (tmp_path / "worker.py").write_text(WORKER.replace("CASE", case))

        def start(arguments, **options):
            started.append(popen([sys.executable, str(tmp_path / "worker.py"), str(tmp_path)], **options))
            return started[-1]

        monkeypatch.setattr(local.subprocess, "Popen", start)
        return started

    yield use
    assert all(process.poll() is not None for process in started), "a worker was left"


def interrupt(folder: Path, number: int, *, times: int = 1, runs: int = 2):
    """Send a signal to this process once `runs` runs have begun."""

    def send():
        while len(list(folder.glob("begun*"))) < runs:
            time.sleep(0.01)
        for _ in range(times):
            os.kill(os.getpid(), number)
            time.sleep(0.2)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_every_worker_and_starts_no_other_run(plan, workers, number, tmp_path):
    started = workers(WAITS)
    thread = interrupt(tmp_path, number)
    with pytest.raises(Stopped) as stopped, stop_on_signals():
        run_all(plan)
    thread.join()
    assert stopped.value.number == number
    assert [process.returncode for process in started] == [143, 143]
    assert len(list(tmp_path.glob("stopped*"))) == 2
    assert sorted(file.name for file in tmp_path.glob("begun*")) == ["begun0", "begun1"]


def test_a_second_signal_does_not_wait_for_workers(plan, workers, tmp_path):
    started = workers(IGNORES)
    thread = interrupt(tmp_path, signal.SIGINT, times=2)
    with pytest.raises(Stopped), stop_on_signals():
        run_all(plan)
    thread.join()
    assert [process.wait() for process in started] == [-signal.SIGKILL] * 2


def test_workers_do_not_get_the_interrupts_of_a_terminal(plan, workers, tmp_path):
    started = workers('os.kill(os.getpid(), signal.SIGINT); Path(sys.argv[1], f"alive{seed}").touch()')
    run_all(plan)
    assert len(list(tmp_path.glob("alive*"))) == 4
    assert [process.returncode for process in started] == [0, 0]


def test_a_full_disk_stops_the_study(plan, workers, tmp_path):
    workers(FULL)
    with pytest.raises(StorageError, match="the disk is full"):
        run_all(plan)
    assert not (tmp_path / "begun3").exists()


def test_a_worker_that_ends_its_run_instead_of_stopping_is_not_waited_for(plan, workers):
    workers(NOTES)
    with pytest.raises(StorageError, match="the disk is full"):
        run_all(plan)


def test_the_run_of_a_worker_that_dies_is_named_and_the_others_are_done(plan, workers):
    workers(DIES)
    ended = []
    with pytest.raises(EquimetricError, match=r"run 'contrastive', seed 0, ended without a result \(exit code 1\)"):
        run_all(plan, lambda job, step, metrics: metrics is None and ended.append(job.config.seed))
    assert sorted(ended) == [1, 2, 3]


def test_notices_of_workers_are_warnings(workers, tmp_path):
    workers(SAYS)
    reports = []
    with pytest.warns(UserWarning, match="seed 0 waits"):
        run_all(plan_of({**STUDY, "seeds": [0]}, tmp_path), lambda job, step, metrics: reports.append((step, metrics)))
    assert reports == [(0, {}), (5, {"loss": 0.5}), (600, None)]


def test_runs_are_done_seed_by_seed_and_baselines_first(workers, tmp_path):
    workers("")
    study = {**STUDY, "seeds": [3, 1], "baselines": ["untrained"], "methods": {"margin": {}, "contrastive": {}}}
    begun = []

    def note_begin(job, step, metrics):
        if metrics == {}:
            begun.append((job.row, job.config.seed))

    with open_engine("local", 1) as engine:
        execute_plan(plan_of(study, tmp_path), engine, note_begin)
    assert begun == [
        ("untrained", 3),
        ("untrained", 1),
        ("margin", 3),
        ("contrastive", 3),
        ("margin", 1),
        ("contrastive", 1),
    ]


def test_an_unknown_engine_is_one_sentence():
    with pytest.raises(EquimetricError, match="unknown engine 'rey'; did you mean 'ray'"), open_engine("rey", 1):
        pass


def test_a_stopped_study_says_how_much_is_finished(equimetric, monkeypatch, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('name = "study"\nseeds = [0]\ndata.name = "digits"\nmethods.contrastive = {}\nbatch.classes = 2\n')

    def stop(*_):
        raise Stopped(signal.SIGTERM)

    monkeypatch.setattr(comparison, "execute_plan", stop)
    code, _, err = equimetric("compare", file, "--output", tmp_path / "runs")
    assert code == 143
    first, *_, last = err.splitlines()
    assert first == "study: 3 runs: 600 steps with 4,800 images in their batches"
    assert last == "equimetric: stopped; 0 of 3 runs are finished; run the same command again to resume"
