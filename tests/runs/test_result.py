"""Results are typed and versioned, and runs of older versions still load."""

import json
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError
from run_cases import configuration

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.runs.evaluation import embed_run, evaluate_part
from equimetric.runs.folder import RunFolder
from equimetric.runs.result import DataShape, RunResult, RunSource
from equimetric.training import train

OLD = Path(__file__).parent / "old_runs"
"""Runs that version 0.1.0 with the first schema of results left."""


@pytest.mark.parametrize("kind", ["vectors", "images"])
def test_an_old_run_loads_and_evaluates_to_its_old_figures(kind, monkeypatch):
    monkeypatch.chdir(OLD)
    stored = json.loads((OLD / kind / "result.json").read_text())
    assert stored["schema"] == 1
    model = em.load(OLD / kind)
    assert model.metrics == stored["metrics"]
    assert model.result.role == "final"
    config, found = embed_run(OLD / kind)
    assert dict(evaluate_part(found, config.evaluation)) == pytest.approx(stored["metrics"], abs=1e-3)


def test_an_old_run_is_not_continued(tmp_path, monkeypatch):
    monkeypatch.chdir(OLD)
    shutil.copytree(OLD / "vectors", tmp_path / "run")
    with pytest.raises(EquimetricError, match="of an older version of Equimetric, which can be loaded but not"):
        train(tmp_path / "run" / "config.toml", folder=tmp_path / "run")


def test_a_newer_or_damaged_result_is_one_sentence(tmp_path):
    for content, message in (
        ('{"schema": 99}', "newer version of Equimetric; upgrade"),
        ('{"schema": 2, "status": "done"', "is damaged .* remove the run's folder and run it again"),
        ('{"schema": 2, "status": "fine"}', "is not the result of a run"),
        ('{"schema": 1}', "is not the result of a run"),
    ):
        (tmp_path / "result.json").write_text(content)
        with pytest.raises(EquimetricError, match=message):
            RunFolder(tmp_path).result()


def test_results_round_trip_and_refuse_unknown_keys():
    result = RunResult(
        status="done",
        role="baseline",
        method="raw_pixels",
        seed=3,
        metrics={"map@r": 0.25},
        data=DataShape(channels=3, vectors=False, classes=4, images=9),
    )
    assert RunResult.parse(json.loads(result.to_json()), "here") == result
    source = RunSource(key="0123", folder="runs/first", best_step=40)
    final = result.model_copy(update={"role": "refit", "notes": ("A note.",), "source": source})
    assert RunResult.parse(json.loads(final.to_json()), "here") == final
    older = {name: value for name, value in json.loads(result.to_json()).items() if name not in ("notes", "source")}
    assert RunResult.parse(older, "here") == result
    assert json.loads(result.to_json())["schema"] == 2
    with pytest.raises(ValidationError):
        RunResult(status="done", role="final", method="a", seed=0, metric={})


def test_a_folder_without_a_finished_run_is_one_sentence(tmp_path):
    with pytest.raises(EquimetricError, match="holds no finished training run; run it to its end first"):
        em.load(tmp_path)


def test_loading_needs_neither_the_loop_nor_the_data(features, tmp_path):
    import subprocess
    import sys

    train(configuration({"name": "features", "options": {"file": str(features)}}), folder=tmp_path / "run")
    features.unlink()
    code = (
        f"import equimetric as em, sys; em.load({str(tmp_path / 'run')!r}); "
        "print(*[name for name in sys.modules if name.startswith('equimetric.training')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == ""


@pytest.mark.parametrize("baseline", ["raw_features", "untrained"])
def test_the_untrained_row_starts_where_every_method_starts(features, tmp_path, baseline):
    data = {"name": "features", "options": {"file": str(features)}}
    config = configuration(data, model={"head_init": "pca"})
    row = train({**config, "method": baseline, "learner": {"name": baseline}}, folder=tmp_path / "row")
    method = train(config, folder=tmp_path / "method")
    first = json.loads((tmp_path / "method" / "metrics.jsonl").read_text().splitlines()[0])
    same = row.validation == {name: first[name] for name in row.validation}
    assert same == (baseline == "untrained")
    assert row.result.steps == 0
    assert method.result.steps == 4


def test_results_that_are_not_finite_round_trip(tmp_path):
    run = RunFolder(tmp_path)
    metrics = {"a": float("nan"), "b": float("inf")}
    run.write_result(RunResult(status="done", role="final", method="m", seed=0, metrics=metrics))
    read = run.result().metrics
    assert read["a"] != read["a"]
    assert read["b"] == float("inf")


def test_a_finished_run_without_its_environment_is_not_overwritten(features, tmp_path):
    config = configuration({"name": "features", "options": {"file": str(features)}})
    train(config, folder=tmp_path / "run")
    (tmp_path / "run" / "environment.json").unlink()
    with pytest.raises(EquimetricError, match=r"without its environment\.json; choose another folder"):
        train(config, folder=tmp_path / "run")


@pytest.mark.parametrize("metric", ["eer", "opis", "frr@distance=0.5", "alignment"])
def test_weights_are_not_selected_by_a_metric_to_minimise(features, metric):
    config = configuration({"name": "features", "options": {"file": str(features)}}, evaluation={"selected_by": metric})
    with pytest.raises(EquimetricError, match="keeps the weights with the largest value"):
        train(config)


def test_a_first_validation_without_a_value_does_not_keep_its_weights(features, tmp_path, monkeypatch):
    from equimetric.runs import evaluation

    evaluate, calls = evaluation.evaluate, []

    def without_first(*given, **options):
        calls.append(1)
        scores = evaluate(*given, **options)
        return {**scores, "map@r": float("nan")} if len(calls) == 1 else scores

    monkeypatch.setattr(evaluation, "evaluate", without_first)
    config = configuration({"name": "features", "options": {"file": str(features)}})
    assert train(config, folder=tmp_path / "run").best_step > 0
