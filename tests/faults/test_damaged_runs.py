"""One damaged run stands in the way of no other: it is shown with its reason, and can be trained again."""

import json
import shutil

import pytest
from study_cases import contents, write_study

from equimetric.studies import load_study
from equimetric.studies.comparison import compare, open_plan
from equimetric.studies.jobs import run_job


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The file of a study and its folder, with all runs done."""
    folder = tmp_path_factory.mktemp("finished")
    study = write_study(folder)
    compare(study, output=folder / "runs", engine="serial")
    return study, folder / "runs" / "small"


@pytest.fixture
def copied(finished, tmp_path):
    """The file of the study, a copy of its folder, and the folder of one run."""
    study, folder = finished
    shutil.copytree(folder, tmp_path / "small")
    (victim,) = (tmp_path / "small" / "contrastive").glob("1-*")
    return study, tmp_path / "small", victim


DAMAGE = {
    "result.json": b'{"schema": 2, "status": "do',
    "per_query.npz": b"PK\x03\x04 no archive",
    "config.toml": b"method = \xff\xfe",
    "metrics.jsonl": b'{"kind": "train"}\n\xff\xff\xff\n',
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_run_is_shown_and_the_table_is_made_of_the_others(name, copied, equimetric):
    _, folder, victim = copied
    (victim / name).write_bytes(DAMAGE[name])
    outcome = {(one.method, one.seed): one for one in load_study(folder).runs}
    assert len(outcome) == 6
    damaged = outcome.pop(("contrastive", 1))
    assert damaged.status == "failed"
    assert str(victim / name) in damaged.error
    assert "trains this run again" in damaged.error
    assert {one.status for one in outcome.values()} == {"done"}
    code, out, err = equimetric("report", folder)
    assert code == 0
    assert "1 of 2, 1 failed" in out
    assert f"contrastive, seed 1 failed: {victim / name}" in err


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl"])
def test_a_damaged_run_is_trained_again_and_kept_beside(name, copied, finished, equimetric, in_process):
    study, folder, victim = copied
    (victim / name).write_bytes(DAMAGE[name])
    weights = (victim / "model.safetensors").read_bytes()
    code, _, err = equimetric("compare", study, "--output", folder.parent)
    assert code == 0, err
    assert "5 of 6 runs are done" in err
    (aside,) = folder.glob("*/damaged_*")
    assert f"the run is trained again, and what is left of it is kept in '{aside}'" in err
    assert (aside / "model.safetensors").read_bytes() == weights
    assert contents(folder) == contents(finished[1])


def test_the_result_of_a_newer_version_is_kept(copied, equimetric, in_process):
    study, folder, victim = copied
    newer = json.dumps({"schema": 99, "status": "done"})
    (victim / "result.json").write_text(newer)
    code, _, err = equimetric("compare", study, "--output", folder.parent, "--retry-failed")
    assert code == 1
    assert "written by a newer version of Equimetric; upgrade to read it" in err
    assert (victim / "result.json").read_text() == newer


def test_a_damaged_run_of_a_study_without_an_index(copied):
    _, folder, victim = copied
    (folder / "index.jsonl").unlink()
    (victim / "result.json").write_bytes(DAMAGE["result.json"])
    outcome = {(one.method, one.seed): one.status for one in load_study(folder).runs}
    assert outcome.pop(("contrastive", 1)) == "failed"
    assert set(outcome.values()) == {"done"}
    assert len(outcome) == 5


def test_damage_of_an_unfinished_run_does_not_fail_it_for_ever(copied, finished, monkeypatch):
    """A checkpoint that cannot be read costs the steps before it, and nothing else."""
    study, folder, victim = copied
    for file in victim.iterdir():
        if file.name not in ("config.toml", "environment.json", ".lock"):
            file.unlink()
    (victim / "environment.json").write_bytes(b"{")
    (victim / "checkpoint.json").write_bytes(b"{")
    plan = open_plan(study, output=folder.parent)
    (job,) = (job for job in plan.known_jobs() if job.folder.name == victim.name)
    with pytest.warns(UserWarning, match="the run is trained again"):
        run_job(job)
    assert contents(folder) == contents(finished[1])
