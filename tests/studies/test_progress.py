"""What a study says while it runs, in a log file: what is done, what continues, scores, times, the time left."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from study_plans import plan_of

from equimetric.cli import study_progress
from equimetric.cli.study_progress import StudyProgress
from equimetric.runs.folder import RunFolder
from equimetric.studies import jobs as jobs_module
from equimetric.studies.outcomes import Outcome
from equimetric.studies.probes.probe import Probe

STUDY = {
    "name": "small",
    "seeds": [0, 1],
    "baselines": ["untrained"],
    "training": {"steps": 2000},
    "methods": {"contrastive": {}, "margin": {}},
}


@pytest.fixture
def plan(tmp_path):
    return plan_of(STUDY, tmp_path)


@pytest.fixture
def jobs(plan):
    """Seed by seed."""
    return sorted(plan.known_jobs(), key=lambda job: (job.kind, job.config.seed))


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when a test advances it."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(study_progress.time, "monotonic", lambda: now.seconds)
    return now


def finish(plan, job, status="done"):
    plan.index.record(
        Outcome(
            job.key,
            status,
            metrics={"map@r": 0.5612} if status == "done" else {},
            seconds=14.2,
            steps=2000 if job.kind == "trained" else 0,
            error=None if status == "done" else "the loss became nan",
        )
    )


def test_a_resumed_study_says_what_is_done_and_where_runs_continue(plan, jobs, capsys):
    for job in jobs[:3]:
        finish(plan, job)
    RunFolder(jobs[3].folder).write("checkpoint.json", '{"step": 1500}')
    with StudyProgress() as progress:
        progress.begin(plan)
    assert capsys.readouterr().err == "3 of 6 runs are done; margin, seed 0 continues at step 1,500\n"


def test_a_new_study_and_a_finished_one_have_nothing_to_say(plan, jobs, capsys):
    with StudyProgress() as progress:
        progress.begin(plan)
    for job in jobs:
        finish(plan, job)
    with StudyProgress() as progress:
        progress.begin(plan)
    assert capsys.readouterr().err == ""


def test_runs_that_end_are_lines_with_score_and_time(plan, jobs, capsys):
    with StudyProgress() as progress:
        progress.begin(plan)
        for job, status in zip(jobs, ["done", "done", "done", "failed"], strict=False):
            progress.watch(job, 0, {})
            finish(plan, job, status)
            progress.watch(job, 2000, None)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "finished untrained, seed 0: map@r 56.12% (1 of 6 runs)"
    assert lines[2].startswith("finished contrastive, seed 0: map@r 56.12%, 14 s (3 of 6 runs")
    assert lines[3].startswith("failed margin, seed 0: the loss became nan (4 of 6 runs")


def test_a_log_file_has_a_line_per_minute_and_not_per_step(plan, jobs, clock, capsys):
    with StudyProgress() as progress:
        progress.begin(plan)
        for step in range(5, 2000, 5):
            clock.seconds += 0.5
            progress.watch(jobs[2], step, {"loss": 0.5})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(re.fullmatch(r"0 of 6 runs(, about .* left)?", line) for line in lines)


def test_the_time_left_follows_from_the_speed_of_steps(plan, jobs, capsys):
    now = SimpleNamespace(seconds=0.0)
    progress = StudyProgress()
    progress.progress.get_time = lambda: now.seconds
    with progress:
        progress.begin(plan)
        for step in range(10, 1000, 10):
            now.seconds += 1.0
            progress.watch(jobs[2], step, {"loss": 0.5})
    # 11,010 steps are left, ten of them in a second.
    assert progress.summary() == "0 of 6 runs, about 18 min left"


def test_damaged_checkpoints_do_not_keep_a_study_from_starting(plan, jobs, capsys):
    Path(jobs[2].folder).mkdir(parents=True)
    (jobs[2].folder / "checkpoint.json").write_bytes(b"\0\xff{")
    with StudyProgress() as progress:
        progress.begin(plan)
    assert capsys.readouterr().err == ""


def test_a_probe_says_how_far_it_is(plan, jobs, clock, capsys, monkeypatch):
    """It took minutes without a word: its measurement reported nothing, and its job took no steps."""
    job = next(job for job in jobs if job.kind == "trained")
    probe_job = replace(job, key=replace(job.key, role="probe"), probe="slow", point="slow", members=(job.folder,))

    def measure(folders, progress):
        for part in range(5):
            progress(part, 5)
        return {"value": 1.0}

    monkeypatch.setattr(jobs_module.PROBES, "find", lambda name: Probe(name, "Slow", 1, measure))
    seen = []
    outcome, _ = jobs_module.run_job(probe_job, lambda step, metrics: seen.append((step, dict(metrics))))
    assert outcome.metrics == {"value": 1.0}
    assert seen == [(0, {}), (400, {}), (800, {}), (1200, {}), (1600, {})]
    with StudyProgress() as progress:
        progress.begin(plan)
        for step, metrics in seen:
            clock.seconds += 61
            progress.watch(probe_job, step, metrics)
    assert "contrastive, slow, seed 0 at 80%; 0 of " in capsys.readouterr().err
