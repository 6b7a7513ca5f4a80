"""`equimetric audit`: of a study's folder, of a described comparison, of a shipped one."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import equimetric as em
from equimetric.runs.data import load_run_data
from equimetric.studies.ledger import LEDGER_FILE, check_fairness
from equimetric.studies.ledger.audit import audit, read_study
from equimetric.studies.ledger.text import checklist

STUDY = {
    "name": "tiny",
    "seeds": [0, 1],
    "baselines": ["raw_features", "untrained"],
    "model": {"dim": 4},
    "batch": {"classes": 2, "samples": 4},
    "training": {"steps": 2, "validate_every": 2, "log_every": 2},
    "methods": {"contrastive": {}, "arcface": {"objective_lr": 0.1}},
}

DESCRIBED = """
title = "Ours [bold]against[/] theirs"

[common]
backbone = "ResNet-50"
intervals = false

[methods.ours]
dim = 512
[methods.theirs]
dim = 64
optimizer = "not stated"
"""


@pytest.fixture
def features(tmp_path):
    labels = np.repeat(np.arange(12), 6)
    vectors = np.random.default_rng(0).normal(size=(72, 9)).astype(np.float32)
    np.savez(tmp_path / "features.npz", features=vectors, labels=labels)
    return tmp_path / "features.npz"


@pytest.fixture
def study(in_process, features, tmp_path):
    data = {"name": "features", "options": {"file": str(features)}}
    return em.compare({**STUDY, "data": data}, output=tmp_path / "runs").folder


def test_a_study_of_ours_is_fair(study, equimetric):
    code, out, err = equimetric("audit", study)
    assert code == 0, err
    assert "Fair: none of the 6 causes of unfair comparison was found." in out
    assert "│ 2 Embedding dimension │ equal  │ dim 4" in out
    assert "Test classes were opened once by each of 7 final runs." in out


def test_the_audit_reads_the_configurations_of_the_runs(study):
    (run,) = study.glob("arcface/1-*")
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text("\n".join(config.splitlines()[1:]).replace("dim = 4", "dim = 8"))
    ledger = audit(study)
    assert ledger.verdict == "not fair"
    assert ledger["dimension"].methods == ("arcface, seed 1",)


def test_later_looks_are_counted_and_change_no_verdict(study, equimetric):
    (run,) = study.glob("arcface/0-*")
    for _ in range(2):
        equimetric("evaluate", run)
    ledger = audit(study)
    assert ledger.verdict == "fair"
    (note,) = ledger.notes
    assert "opened more than once by 1 of 7 final runs: arcface/0-" in note
    assert " 3 times (evaluate 20" in note


def test_the_ledger_of_the_study_says_what_is_declared_and_waived(study):
    found = read_study(study)
    data = load_run_data(found.study.data)
    waivers = {"tuning": "one was tuned by hand"}
    ledger = check_fairness("tiny", found.configs, [data], trials={"arcface": 9}, waivers=waivers, varies=["batch"])
    ledger.save(study)
    again = audit(study)
    assert again.replace(ledger.entries) == ledger.replace([], again.notes)
    assert again["tuning"].reason == "one was tuned by hand"


def test_without_its_data_a_study_is_not_shown_to_be_fair(study, features, equimetric):
    features.unlink()
    (study / LEDGER_FILE).unlink(missing_ok=True)
    code, out, _ = equimetric("audit", study)
    assert code == 1
    assert "Not shown to be fair: not stated: disjoint classes, near-duplicates." in out


def test_a_described_comparison(tmp_path, equimetric):
    file = tmp_path / "mine.toml"
    file.write_text(DESCRIBED)
    code, out, _ = equimetric("audit", file)
    assert code == 1
    lines = out.splitlines()
    assert lines[0] == "Ours [bold]against[/] theirs"
    assert lines[1].startswith("Not fair: 2 of 6 causes of unfair comparison (embedding dimension, missing intervals)")
    code, out, _ = equimetric("audit", file, "--format", "json")
    document = json.loads(out)
    assert (code, document["verdict"]) == (1, "not fair")
    assert document["entries"][1]["status"] == "differs"
    assert document["entries"][1]["finding"] == "dim is 512 for ours; 64 for theirs"
    code, out, _ = equimetric("audit", file, "--format", "md")
    assert code == 1
    assert r"**Ours \[bold\]against\[/\] theirs**" in out
    assert "| 2 Embedding dimension | differs | dim is 512 for ours; 64 for theirs → give every method" in out


def test_a_shipped_comparison(equimetric):
    code, out, _ = equimetric("audit", "unbiased-table-1")
    assert code == 1
    assert "Not fair: 3 of 6 causes of unfair comparison" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["unbiased-table-9"], "unknown comparison 'unbiased-table-9'; did you mean"),
        (["nowhere.toml"], "there is no configuration file 'nowhere.toml'"),
        (["."], "'.' is not the folder of a study; give a folder such as runs/demo"),
        (["unbiased-table-1", "--format", "html"], "unknown format 'html'; valid names: text, json, md"),
    ],
)
def test_mistakes_have_exit_code_2(tmp_path, monkeypatch, equimetric, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, _, err = equimetric("audit", *arguments)
    assert code == 2
    assert message in err


def test_the_checklist_begins_with_the_six_causes():
    rows = checklist(audit(Path("unbiased-table-3")))
    assert [name.partition(" ")[0] for name, _, _ in rows[:6]] == list("123456")
    assert all(not name[0].isdigit() for name, _, _ in rows[6:])


def test_the_examples_of_the_documentation(study, tmp_path, monkeypatch, equimetric):
    """Every `equimetric audit` of the page, on the described comparison of the page and on a study."""
    page = (Path(__file__).parents[2] / "docs" / "studies.md").read_text()
    (described,) = (block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "# my-comparison" in block)
    (tmp_path / "my-comparison.toml").write_text(described)
    study.rename(study.with_name("small"))
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ equimetric (audit .*)", page, re.MULTILINE)
    ended = {command: equimetric(*shlex.split(command, comments=True)) for command in commands}
    assert [code for code, _, _ in ended.values()] == [0, 1, 1, 1]
    *_, (command, (_, printed, _)) = ended.items()
    shown = page.partition(f"$ equimetric {command}\n")[2].partition("```")[0].strip().removesuffix("…")
    assert printed.startswith(shown)
