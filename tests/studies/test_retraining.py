"""Studies that are kept as their index: their first runs trained again, compared, and shown."""

import json
import shutil

import numpy as np
import pytest

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.report import render_html
from equimetric.studies import load_study
from equimetric.studies.index import StudyIndex, format_line
from equimetric.studies.retraining import describe_retrained, retrain_rows

STUDY = {
    "name": "tiny",
    "seeds": [3, 4],
    "workers": 1,
    "baselines": ["raw_features", "untrained"],
    "model": {"dim": 8},
    "batch": {"classes": 4, "samples": 4},
    "training": {"steps": 6, "validate_every": 3, "log_every": 3},
    "methods": {"Contrastive": {"method": "contrastive"}, "arcface": {"objective_lr": 0.1}},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A study without its folders of runs, as a repository keeps it; and where its data are now."""
    folder = tmp_path_factory.mktemp("study")
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(16), 12)
    vectors = (generator.normal(size=(16, 12))[labels] + generator.normal(size=(len(labels), 12))).astype(np.float32)
    np.savez(folder / "features.npz", features=vectors, labels=labels)
    data = {"name": "features", "options": {"file": str(folder / "features.npz")}}
    finished = em.compare({**STUDY, "data": data}, output=folder / "runs")
    (folder / "store").mkdir()
    for name in ("study.toml", "data.json", "index.jsonl", "ledger.json"):
        shutil.copy(finished.folder / name, folder / "store" / name)
    (folder / "features.npz").rename(folder / "moved.npz")
    return folder


@pytest.fixture(scope="module")
def found(store):
    return list(retrain_rows(store / "store", store / "again", {"data.options.file": str(store / "moved.npz")}))


def test_the_first_run_of_every_row_gives_the_scores_of_the_index(found):
    assert [one.row for one in found] == ["raw_features", "untrained", "Contrastive", "arcface"]
    assert all(one.reproduction.matches for one in found), [str(one) for one in found]
    assert all(one.reproduction.folder.name.startswith("3-") for one in found)
    assert describe_retrained(found, 4).endswith("All have the scores of the study to the last bit.")


def test_the_study_is_only_read(store, found):
    assert {file.name for file in (store / "store").iterdir()} == {
        "study.toml",
        "data.json",
        "index.jsonl",
        "ledger.json",
    }


def test_a_page_shows_what_the_new_runs_found(store, found):
    located = {"data.options.file": str(store / "moved.npz")}
    before, after = (
        load_study(store / "store"),
        load_study(store / "store", retrained_folder=store / "again", data_options=located),
    )
    assert not before.profiles
    assert set(after.profiles) == {"raw_features", "untrained", "Contrastive", "arcface"}
    assert [dict(run.metrics) for run in after.runs] == [dict(run.metrics) for run in before.runs]
    assert all(run.memory["process"] > 0 for run in after.runs if run.seed == 3)
    page = render_html(after)
    assert '<section id="explorer"' in page
    assert "peak memory" in page
    # Folders of other runs than the study's are nothing to link to, and no look at its test classes.
    assert not any(run.folder for run in after.runs)
    assert after.test_accesses == before.test_accesses == {}
    assert str(store / "moved.npz") not in page


def test_other_scores_are_told(store, found, tmp_path):
    shutil.copytree(store / "store", tmp_path / "store")
    index = StudyIndex(tmp_path / "store")
    outcome = next(one for one in index.outcomes.values() if one.key.method == "arcface" and one.key.seed == 3)
    values = outcome.to_json()
    values["metrics"]["map@r"] += 0.25
    with (tmp_path / "store" / "index.jsonl").open("a") as file:
        file.write(format_line({"outcome": values}))
    again = list(retrain_rows(tmp_path / "store", store / "again", {"data.options.file": str(store / "moved.npz")}))
    differing = [one for one in again if not one.reproduction.matches]
    assert [one.row for one in differing] == ["arcface"]
    assert differing[0].reproduction.differences == {"map@r": pytest.approx(-0.25)}
    assert "arcface: different: 1 of" in str(differing[0])
    assert describe_retrained(again, 4).endswith(
        "3 of them have the scores of the study to the last bit; of the others "
        "the largest difference is 0.3 (map@r of arcface)."
    )


def test_what_is_there_is_not_trained_again(store, found):
    results = {one.reproduction.folder / "result.json" for one in found}
    before = {file: file.stat().st_mtime_ns for file in results}
    list(retrain_rows(store / "store", store / "again", {"data.options.file": str(store / "moved.npz")}))
    assert {file: file.stat().st_mtime_ns for file in results} == before


def test_single_rows_can_be_chosen(store, found, tmp_path):
    located = {"data.options.file": str(store / "moved.npz")}
    (one,) = retrain_rows(store / "store", tmp_path / "again", located, only=["arcface"])
    assert one.row == "arcface"
    assert "the first run of 1 of 4 rows, trained again" in describe_retrained([one], 4)
    with pytest.raises(EquimetricError, match="did you mean 'arcface'"):
        list(retrain_rows(store / "store", tmp_path / "again", located, only=["arcfase"]))


def test_other_data_or_settings_are_one_sentence(store, tmp_path):
    np.savez(tmp_path / "other.npz", features=np.eye(64, dtype=np.float32), labels=np.repeat(np.arange(16), 4))
    with pytest.raises(EquimetricError, match="fingerprint"):
        list(retrain_rows(store / "store", tmp_path / "again", {"data.options.file": str(tmp_path / "other.npz")}))
    with pytest.raises(EquimetricError, match="would make another study"):
        list(retrain_rows(store / "store", tmp_path / "again", {"training.steps": 3}))
    with pytest.raises(EquimetricError, match="is not the folder of a study"):
        list(retrain_rows(tmp_path, tmp_path / "again"))


def test_the_command_says_how_scores_compare(equimetric, store, found, tmp_path, is_one_sentence):
    where = ("--data.options.file", store / "moved.npz")
    code, out, err = equimetric(
        "report", store / "store", "--retrain", store / "again", "--output", tmp_path / "page", *where
    )
    assert code == 0, err
    assert "Contrastive: identical" in " ".join(out.split())
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "trained again for this page" in " ".join(page.split())
    assert json.loads((store / "store" / "data.json").read_text())["fingerprint"] in page
    for arguments in (("--retrain", tmp_path / "x"), ("--training.steps", 3), ("--row", "arcface")):
        code, _, err = equimetric("report", store / "store", *arguments)
        assert code == 2
        assert is_one_sentence(err), err
