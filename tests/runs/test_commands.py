"""Two commands say the same of a run: `evaluate RUN` and `calibrate RUN` repeat its result and embeddings."""

import hashlib
import json

import pytest

import equimetric as em
from equimetric.evaluation import evaluate_identification
from equimetric.runs.evaluation import embed_run
from equimetric.training import train


def test_evaluate_prints_the_figures_of_the_result(config, tmp_path, equimetric):
    train(config, folder=tmp_path / "run")
    code, out, _ = equimetric("evaluate", tmp_path / "run", "--json")
    assert code == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    printed = json.loads(out)
    assert {name: printed[name] for name in result["metrics"]} == result["metrics"]
    gallery = embed_run(tmp_path / "run")[1].gallery
    assert printed["gallery"] == (printed["queries"] if gallery is None else len(gallery))


def test_evaluate_takes_validation_classes_and_other_metrics(sources, tmp_path, equimetric):
    train(sources["features"], folder=tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    _, out, _ = equimetric("evaluate", tmp_path / "run", "--part", "validation", "--json")
    printed = json.loads(out)
    assert {name: printed[name] for name in result["validation"]} == result["validation"]
    _, out, _ = equimetric("evaluate", tmp_path / "run", "-m", "eer,map@r", "--json")
    assert json.loads(out)["map@r"] == result["metrics"]["map@r"]
    code, _, error = equimetric("evaluate", tmp_path / "run", "--part", "tests")
    assert code == 2
    assert "unknown part of the split 'tests'; did you mean 'test'" in error


@pytest.mark.parametrize("kind", ["files through a view", "files, frozen", "queries and gallery", "features"])
def test_calibrate_uses_the_embeddings_of_the_test_classes(kind, sources, tmp_path, equimetric):
    train(sources[kind], folder=tmp_path / "run")
    code, out, _ = equimetric("calibrate", tmp_path / "run", "--far", "0.2", "--json")
    assert code == 0
    found = embed_run(tmp_path / "run")[1]
    expected = em.calibrate(found.embeddings, found.labels, far=0.2)
    certificate = json.loads(out)
    assert certificate["threshold"] == expected.threshold
    assert certificate["data"]["sha256"] == expected.fingerprint
    weights = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert certificate["model"] == hashlib.sha256(weights).hexdigest()
    expected_view = "feature vectors as they are" if kind == "features" else f"{sources[kind]['data']['transform']}: "
    assert certificate["preprocessing"].startswith(expected_view)
    named = {entry["name"] for entry in certificate["worst_classes"]}
    assert named <= {found.class_names[number] for number in found.labels.tolist()}


@pytest.mark.parametrize("kind", ["queries and gallery", "features"])
def test_identify_searches_the_embeddings_of_the_test_classes(kind, sources, tmp_path, equimetric):
    train(sources[kind], folder=tmp_path / "run")
    code, out, err = equimetric("identify", tmp_path / "run", "--fpir", "0.2", "--json")
    assert code == 0, err
    found = embed_run(tmp_path / "run")[1]
    expected = evaluate_identification(**found.arrays(), fpir=0.2)
    assert json.loads(out)["rates"][0]["threshold"] == expected.points[0].threshold


def test_a_run_reports_identification(sources, tmp_path):
    metrics = {"metrics": ["recall@1", "fnir@fpir=0.1", "rank1@fpir=0.1"], "selected_by": "rank1@fpir=0.1"}
    scores = train(sources["features"] | {"evaluation": metrics}, folder=tmp_path / "run").metrics
    assert scores["fnir@fpir=0.1"] == pytest.approx(1 - scores["rank1@fpir=0.1"])


def test_check_refuses_another_model(sources, tmp_path, equimetric):
    for seed in (0, 1):
        train(sources["files through a view"] | {"seed": seed}, folder=tmp_path / f"run{seed}")
    file = tmp_path / "certificate.json"
    code, _, _ = equimetric("calibrate", tmp_path / "run0", "--far", "0.2", "--out", file)
    assert code == 0
    code, out, _ = equimetric("check", file, tmp_path / "run0")
    assert code == 0
    assert "as certified" in out or "too few to say" in out
    code, _, err = equimetric("check", file, tmp_path / "run1")
    assert code == 2
    assert "this certificate is for the model" in err


def test_evaluate_names_the_classes_of_a_run(sources, tmp_path, equimetric):
    train(sources["files through a view"], folder=tmp_path / "run")
    code, out, err = equimetric("evaluate", tmp_path / "run", "-m", "recall@1", "--class-thresholds", "0.2", "--json")
    assert code == 0, err
    found = embed_run(tmp_path / "run")[1]
    named = {found.class_names[label] for label in found.labels.tolist()}
    assert {row["class"] for row in json.loads(out)["class_thresholds"]["classes"]} == named
