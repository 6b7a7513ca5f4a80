import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from study_plans import plan_of

import equimetric as em
from equimetric.configuration import load_config
from equimetric.errors import EquimetricError
from equimetric.report import render_html, write_report
from equimetric.studies import load_study
from equimetric.studies.configuration import StudyConfig
from equimetric.studies.narrative import describe_study_conditions, statement

TINY = {
    "name": "tiny",
    "seeds": [0, 1],
    "workers": 2,
    "data": {"name": "digits"},
    "model": {"dim": 8},
    "batch": {"classes": 2, "samples": 8},
    "training": {"steps": 8, "validate_every": 4, "log_every": 4},
    "methods": {
        "Contrastive": {"method": "contrastive"},
        "arcface": {"objective_lr": 0.1, "options": {"scale": 16.0}},
    },
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return em.compare(TINY, output=tmp_path_factory.mktemp("runs"))


def table_of(folder):
    """All of the table except times."""
    record = load_study(folder)
    return [(run.method, run.seed, run.status, dict(run.metrics)) for run in record.runs]


def test_every_method_and_seed_has_a_run_beside_the_baselines(finished):
    runs = [(run.method, run.kind, run.seed) for run in finished.record.runs]
    assert sorted(runs) == [
        ("Contrastive", "trained", 0),
        ("Contrastive", "trained", 1),
        ("arcface", "trained", 0),
        ("arcface", "trained", 1),
        ("raw_pixels", "baseline", 0),
        ("untrained", "baseline", 0),
        ("untrained", "baseline", 1),
    ]
    assert all(run.status == "done" for run in finished.record.runs)


def test_the_table_prints(finished):
    text = str(finished)
    assert "Contrastive" in text
    assert "±" in text


def test_only_the_objective_differs_between_methods():
    jobs = [job for job in plan_of(TINY, Path("runs")).known_jobs() if job.kind == "trained" and job.config.seed == 0]
    differing = set()
    first, second = (job.config.model_dump() for job in jobs)
    for table in first:
        if first[table] != second[table]:
            differing.add(table)
    assert differing == {"method", "options", "optimizer"}
    assert {k for k in first["optimizer"] if first["optimizer"][k] != second["optimizer"][k]} == {"objective_lr"}


def test_run_folders_are_named_by_seed_and_hash(finished):
    for folder in finished.folder.glob("*/*-*"):
        seed, _, content = folder.name.partition("-")
        assert seed in "01"
        assert len(content) == 12
        assert json.loads((folder / "result.json").read_text())["schema"] == 2


def test_a_finished_study_is_not_run_again(finished):
    before = {file: file.stat().st_mtime_ns for file in finished.folder.rglob("result.json")}
    again = em.compare(TINY, output=finished.folder.parent)
    assert {file: file.stat().st_mtime_ns for file in finished.folder.rglob("result.json")} == before
    assert str(again) == str(finished)


def test_an_added_seed_trains_only_its_own_runs(finished, tmp_path):
    done = []
    more = {**TINY, "seeds": [0, 1, 2]}
    em.compare(more, output=finished.folder.parent, watch=lambda job, *_: done.append((job.row, job.config.seed)))
    assert {seed for _, seed in done} == {2}
    em.compare(TINY, output=finished.folder.parent)


def test_the_record_is_a_function_of_the_run_folders(finished):
    assert table_of(finished.folder) == [(r.method, r.seed, r.status, dict(r.metrics)) for r in finished.record.runs]
    assert render_html(load_study(finished.folder)) == render_html(finished.record)


def test_the_gallery_shows_the_same_queries_for_every_row(finished):
    galleries = finished.record.galleries
    assert set(galleries) == {"raw_pixels", "untrained", "Contrastive", "arcface"}
    names = {method: [row.query_name for row in rows] for method, rows in galleries.items()}
    assert len({tuple(queries) for queries in names.values()}) == 1
    assert all(len(row.neighbours) == 8 for row in galleries["arcface"])


def test_the_statement_names_the_metric_that_selects_weights_and_the_number_of_seeds():
    study = load_config({**TINY, "evaluation": {"selected_by": "recall@1"}}, StudyConfig)
    text = " ".join(statement(study))
    assert "best recall@1 on validation classes" in text
    assert "trained with 2 seeds" in text
    assert "With one seed there are no intervals" in " ".join(
        statement(load_config({**TINY, "seeds": [0]}, StudyConfig))
    )


def test_the_conditions_claim_unit_length_only_for_cosine():
    lengths = {
        geometry: "unit length" in describe_study_conditions(load_config(study, StudyConfig), None)["Network"]
        for geometry in ("cosine", "euclidean", "dot")
        for study in [{**TINY, "evaluation": {"geometry": geometry}}]
    }
    assert lengths == {"cosine": True, "euclidean": False, "dot": False}


def described(*rates):
    """The condition of the optimiser where two methods set these learning rates."""
    methods = {
        name: {"method": "contrastive", "conditions": {} if rate is None else {"optimizer.lr": rate}}
        for name, rate in zip("ab", rates, strict=True)
    }
    study = {**TINY, "varies": ["optimizer.lr"], "methods": methods, "optimizer": {"lr": 0.003}}
    return describe_study_conditions(load_config(study, StudyConfig), None)["Optimiser"]


def test_conditions_are_unequal_only_where_values_differ():
    assert "learning rate 0.5 " in described(0.5, 0.5)
    assert "learning rate 0.003 " in described(0.003, None)
    assert "learning rate 0.003 " in described(0.5, None)
    unequal = {rates: "not equal for all methods: lr" in described(*rates) for rates in ((0.5, 0.5), (0.003, None))}
    assert not any(unequal.values())
    assert "not equal for all methods: lr" in described(0.5, None)
    assert "not equal for all methods: lr" in described(0.5, 0.1)


def test_the_report_is_written(finished, tmp_path):
    page = write_report(finished.record, tmp_path / "report")
    text = page.read_text()
    assert "Contrastive" in text
    assert "data:image/png;base64," in text


def test_a_failed_run_stops_no_other_and_says_why(tmp_path):
    explosive = {
        **TINY,
        "methods": {"good": {"method": "contrastive"}, "bad": {"method": "arcface", "objective_lr": 1e38}},
    }
    result = em.compare(explosive, output=tmp_path, overrides={"training.steps": 20, "optimizer.name": "sgd"})
    outcome = {(run.method, run.seed): run for run in result.record.runs}
    assert outcome["good", 0].status == "done"
    assert outcome["bad", 0].status == "failed"
    assert "became nan at step" in outcome["bad", 0].error
    assert "failed" in render_html(result.record)


def test_mistakes_raise_before_training(tmp_path):
    for change, message in (
        ({"methods": {"a": {"method": "contrasitve"}}}, "unknown method 'contrasitve'; did you mean 'contrastive'"),
        ({"methods": {"contrastive": {"options": {"margn": 1.0}}}}, "no option 'margn'"),
        ({"batch": {"classes": 50}}, "a batch of 50 classes cannot be drawn from 3"),
        ({"data": {"name": "digitz"}}, "unknown data set 'digitz'; did you mean 'digits'"),
        ({"model": {"backbone": "resnet"}}, "unknown backbone 'resnet'"),
        ({"data": {"name": "digits", "transform": "afine"}}, "unknown transform 'afine'"),
    ):
        with pytest.raises(EquimetricError, match=message):
            em.compare({**TINY, **change}, output=tmp_path)
    assert not list(tmp_path.rglob("result.json"))


def test_a_folder_without_a_study_is_an_error(tmp_path):
    with pytest.raises(EquimetricError, match="is not the folder of a study"):
        load_study(tmp_path)


def test_sigkill_in_the_middle_changes_no_number(finished, tmp_path):
    code = f"import equimetric as em; em.compare({TINY!r}, output={str(tmp_path)!r})"
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ, start_new_session=True)
    while process.poll() is None and not list(tmp_path.glob("tiny/Contrastive/*/result.json")):
        time.sleep(0.01)
    assert process.poll() is None, "the study ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished_before = len(list(tmp_path.rglob("result.json")))
    assert 0 < finished_before < len(finished.record.runs)
    em.compare(TINY, output=tmp_path)
    assert table_of(tmp_path / "tiny") == table_of(finished.folder)


def test_workers_stop_when_their_parent_is_killed(tmp_path):
    training = {"steps": 100_000, "validate_every": 100_000, "checkpoint_seconds": 0}
    long = {**TINY, "training": training, "baselines": []}
    code = f"import equimetric as em; em.compare({long!r}, output={str(tmp_path)!r})"
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ)
    while process.poll() is None and len(list(tmp_path.rglob("checkpoint.json"))) < 2:
        time.sleep(0.01)
    workers = children_of(process.pid)
    assert len(workers) == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def children_of(pid):
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(status.parent.name))
    return found
