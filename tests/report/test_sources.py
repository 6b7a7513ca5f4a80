"""What `equimetric report` makes a page of: a run, a file of embeddings, embeddings with labels beside them."""

import csv
import json
import sys

import numpy as np
import pytest

from equimetric.cli.report_source import find_source
from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate
from equimetric.evaluation.threshold_profile import threshold_profile
from equimetric.report import EmbeddingsRecord, StudyRecord, render_html
from equimetric.studies.report_records import load_embeddings_record, load_record, load_run_record
from equimetric.training import train

RUN = {
    "method": "contrastive",
    "seed": 3,
    "data": {"name": "digits"},
    "model": {"dim": 8},
    "batch": {"classes": 2, "samples": 8},
    "training": {"steps": 4, "validate_every": 2},
}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "digits-run"
    train(RUN, folder=folder, profile=True)
    return folder


@pytest.fixture
def space():
    """Vectors of 12 classes of 6 with names, one of them hostile."""
    draw = np.random.default_rng(0)
    labels = np.repeat(["<script>alert(1)</script>", *(f"class {number}" for number in range(1, 12))], 6)
    vectors = np.repeat(draw.normal(size=(12, 4)), 6, axis=0) + 0.8 * draw.normal(size=(72, 4))
    return {"embeddings": vectors.astype(np.float32), "labels": labels}


def test_a_run_is_a_study_of_one_method_and_one_seed(run_folder):
    record = load_run_record(run_folder)
    assert isinstance(record, StudyRecord)
    (run,) = record.runs
    stored = json.loads((run_folder / "result.json").read_text(encoding="utf-8"))
    assert (run.method, run.seed, run.status, run.kind) == ("contrastive", 3, "done", "trained")
    assert {name: run.metrics[name] for name in stored["metrics"]} == stored["metrics"]
    assert run.seconds == stored["seconds"]
    assert list(run.validation("map@r")) == [0, 2, 4]
    assert len(run.per_class["map@r"]) == len(run.classes.labels)
    assert record.recipes == {"contrastive": ("contrastive", {})}
    assert record.fingerprint
    assert record.galleries["contrastive"]
    assert record.profiles["contrastive"].run.map is not None


def test_the_page_of_a_run(equimetric, run_folder, tmp_path):
    code, out, err = equimetric("report", run_folder, "--output", tmp_path)
    assert code == 0, err
    assert "contrastive" in out
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "contrastive, seed 3" in page
    assert "One run does not show how much the seed matters" in " ".join(page.split())
    for name in ("leaderboard", "faults", "training", "reproduce"):
        assert f'<section id="{name}"' in page
    (row,) = csv.DictReader((tmp_path / "table.csv").read_text(encoding="utf-8").splitlines())
    stored = json.loads((run_folder / "result.json").read_text(encoding="utf-8"))["metrics"]
    assert float(row["map@r_mean"]) == pytest.approx(stored["map@r"])


def test_a_run_that_has_not_finished_has_no_report(equimetric, run_folder, tmp_path, is_one_sentence):
    (tmp_path / "config.toml").write_bytes((run_folder / "config.toml").read_bytes())
    code, _, err = equimetric("report", tmp_path)
    assert code == 2
    assert is_one_sentence(err)


def test_embeddings_are_measured_as_the_api_does(space, tmp_path):
    np.savez(tmp_path / "space.npz", **space)
    record = load_embeddings_record(tmp_path / "space.npz")
    assert isinstance(record, EmbeddingsRecord)
    expected = evaluate(**space, metrics=list(record.metrics))
    assert dict(record.metrics) == {name: pytest.approx(float(expected[name])) for name in record.metrics}
    assert {"recall@1", "map@r", "eer", "opis"} <= set(record.metrics)
    assert [record.class_name(label) for label in record.labels.tolist()] == space["labels"].tolist()
    assert record.facts["Vectors"] == "72 of 4 dimensions"
    assert record.facts["Classes"] == "12"
    assert np.array_equal(record.profile.thresholds.positive, threshold_profile(**space).positive)


def test_the_page_of_embeddings_lies_beside_their_file(equimetric, space, tmp_path):
    np.savez(tmp_path / "space.npz", **space)
    code, out, err = equimetric("report", tmp_path / "space.npz")
    assert code == 0, err
    page = tmp_path / "space-report" / "index.html"
    assert "Report: " in out
    text = page.read_text(encoding="utf-8")
    assert "Embeddings space" in text
    assert '<section id="explorer"' in text
    assert "<script>alert" not in text
    rows = list(csv.DictReader((page.parent / "table.csv").read_text(encoding="utf-8").splitlines()))
    values = {row["metric"]: float(row["value"]) for row in rows}
    expected = evaluate(**space, metrics=["map@r", "opis"])
    assert values["map@r"] == pytest.approx(float(expected["map@r"]))
    first = page.read_bytes()
    equimetric("report", tmp_path / "space.npz")
    assert page.read_bytes() == first


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_labels_come_from_a_file_of_their_own(equimetric, space, tmp_path, kind):
    np.savez(tmp_path / "space.npz", **space)
    np.save(tmp_path / "vectors.npy", space["embeddings"])
    labels = tmp_path / f"classes.{kind}"
    if kind == "npy":
        np.save(labels, space["labels"])
    else:
        labels.write_text("\n".join(["label", *space["labels"]]) + "\n", encoding="utf-8")
    code, _, err = equimetric("report", tmp_path / "vectors.npy", "--labels", labels, "--output", tmp_path / "page")
    assert code == 0, err
    beside, inside = (
        load_record(tmp_path / "vectors.npy", labels),
        load_record(tmp_path / "space.npz"),
    )
    assert dict(beside.metrics) == dict(inside.metrics)
    assert beside.class_names == inside.class_names


def test_wrong_sources_are_one_sentence(equimetric, space, run_folder, tmp_path, is_one_sentence):
    np.savez(tmp_path / "space.npz", **space)
    np.savez(tmp_path / "two.npz", **space, **{f"gallery_{name}": array for name, array in space.items()})
    np.save(tmp_path / "vectors.npy", space["embeddings"])
    np.save(tmp_path / "classes.npy", space["labels"])
    study_file = tmp_path / "study.toml"
    study_file.write_text('name = "other"\n')
    (tmp_path / "planned").mkdir()
    (tmp_path / "planned" / "study.toml").write_text('name = "planned"\n')
    (tmp_path / "empty").mkdir()
    for arguments, expected in (
        ((tmp_path / "missing.npz",), "there is no file"),
        ((tmp_path / "two.npz",), "has a separate gallery"),
        ((tmp_path / "vectors.npy",), "vectors.csv"),
        ((tmp_path / "space.npz", "--labels", tmp_path / "classes.npy"), "holds its own labels"),
        ((run_folder, "--labels", tmp_path / "classes.npy"), "has its own labels"),
        (
            (tmp_path / "space.npz", "--format", "docx"),
            "tables are written as md, csv, tex, json, figures as svg, png, pdf",
        ),
        ((study_file,), "give the study's folder, e.g. runs/other"),
        ((tmp_path / "planned",), "a study that has not run yet: `equimetric compare"),
        ((tmp_path / "empty",), "is neither a study nor a run"),
    ):
        code, _, err = equimetric("report", *arguments)
        assert code == 2, arguments
        assert is_one_sentence(err), err
        assert expected in err


def test_a_folder_of_results_has_its_study_in_its_store(tmp_path):
    store = tmp_path / "results" / "store"
    store.mkdir(parents=True)
    for name in ("study.toml", "data.json"):
        (store / name).write_text("")
    (tmp_path / "results" / "study.toml").write_text("")
    assert find_source(tmp_path / "results") == store
    with pytest.raises(EquimetricError, match=r"results/store"):
        find_source(tmp_path / "results" / "study.toml")


def test_every_spelling_of_where_to_write(equimetric, space, tmp_path):
    np.savez(tmp_path / "space.npz", **space)
    for place, option in enumerate(("--out", "--output", "-o")):
        folder = tmp_path / f"page {place}"
        code, out, err = equimetric("report", tmp_path / "space.npz", "--format", "md", option, folder)
        assert code == 0, err
        assert (folder / "table.md").exists()
        assert str(folder) in out


def test_too_few_pairs_have_no_explorer(embeddings):
    assert embeddings.profile is None
    assert '<section id="explorer"' not in render_html(embeddings)


def test_several_labels_for_an_item_are_an_error(space, tmp_path):
    np.savez(tmp_path / "space.npz", embeddings=space["embeddings"], labels=np.ones((72, 2), dtype=np.int64))
    with pytest.raises(EquimetricError, match="several labels"):
        load_embeddings_record(tmp_path / "space.npz")


def test_without_the_extra_a_run_still_has_its_page(equimetric, run_folder, tmp_path, monkeypatch):
    for name in ("altair", "vl_convert"):
        monkeypatch.setitem(sys.modules, name, None)
    code, _, err = equimetric("report", run_folder, "--output", tmp_path)
    assert code == 0, err
    assert {"index.html", "table.md", "table.csv", "table.tex"} <= {file.name for file in tmp_path.iterdir()}
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "pip install" in page
    assert "vegaEmbed = vegaEmbed" not in page
