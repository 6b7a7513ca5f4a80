"""A reality check in miniature, end to end: search, folds, repetitions, joined folds; killed, spread and moved."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import equimetric as em
from equimetric.report import comparison_table, study_tables, to_csv
from equimetric.runs.evaluation import embed_run
from equimetric.studies import load_study
from equimetric.studies.index import StudyIndex
from equimetric.studies.schedule import ignore_progress

STUDY = """
name = "mini"
title = "Reality check in miniature"
protocol = "reality-check"
seeds = [0, 1]
data = { name = "glyphs", folds = 2, transform = "affine", options = { minimum_faces = 16 } }
model = { backbone = "small_cnn", pretrained = "none", dim = 16, frozen_batch_norm = false }
optimizer = { lr = 1e-4 }
training = { steps = 4, validate_every = 2, patience = 2, log_every = 2 }
search = { trials = 3, startup = 2 }
[methods.Contrastive]
[methods."N. Softmax"]
"""

RUNS = 3 + 2 * (3 * 2 + 2 * 2 + 2)
"""Baselines; trials × folds, seeds × folds and seeds of two methods."""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    file = tmp_path_factory.mktemp("study") / "mini.toml"
    file.write_text(STUDY)
    return file


@pytest.fixture(scope="module")
def finished(study):
    return em.compare(study, output=study.parent / "runs", jobs=2)


MEASURED = {"seconds", "total_seconds", "process_bytes"}
"""Fields that no two runs have alike."""


def tables_of(folder):
    """Every table of a study without times and memory."""
    found = {}
    for name, table in study_tables(load_study(folder)).items():
        header, *lines = (line.split(",") for line in to_csv(table).splitlines())
        kept = [place for place, field in enumerate(header) if field not in MEASURED]
        found[name] = [[line[place] for place in kept] for line in (header, *lines)]
    return found


def test_one_command_gives_every_table(finished):
    tables = tables_of(finished.folder)
    from_index = {"table", "joined", "tuning", "improvement-contrastive", "accuracy", "classes", "ledger"}
    assert set(tables) == from_index | {"training", "thresholds"}
    rows = {line[0] for line in tables["table"][1:]}
    assert rows == {"raw_pixels", "untrained", "Contrastive", "N. Softmax"}
    assert {row.runs for row in comparison_table(finished.record).rows if row.kind == "trained"} == {"2 × 2"}
    assert len(finished.record.joined_runs) == 4


def test_trials_never_see_the_test_classes_and_leave_no_folder(finished):
    index = StudyIndex(finished.folder)
    trials = [one for one in index.outcomes.values() if one.key.role == "trial"]
    assert len(trials) == 2 * 3 * 2
    assert all(one.metrics == {} and one.per_class == {} and "map@r" in one.validation for one in trials)
    assert len(index.outcomes) == RUNS
    assert not list(finished.folder.glob("*/t*-*"))
    seeds = {one.key.seed for one in trials}
    assert seeds == {10_000, 10_001, 10_002}


def test_the_best_trial_by_the_mean_over_folds_is_what_final_runs_use(finished):
    search = finished.record.searches["Contrastive"]
    index = StudyIndex(finished.folder)
    for number, trial in enumerate(search.trials):
        folds = index.trials_of("Contrastive")[number]
        assert trial.score == pytest.approx(sum(one.validation["map@r"] for one in folds.values()) / 2)
    assert search.choice.score == max(trial.score for trial in search.trials)
    for config in finished.folder.glob("Contrastive/[0-9]*/config.toml"):
        text = config.read_text()
        assert all(f"{name} = {value!r}" in text for name, value in search.choice.params.items())


def test_the_record_says_what_was_tuned_and_what_is_not_equal(finished):
    record = finished.record
    chosen = record.searches["Contrastive"].choice.params
    assert record.tuned["Contrastive"] == {key: value for key, value in chosen.items() if "." not in key}
    assert set(record.tuned["Contrastive"]) == {"pos_margin", "neg_margin"}
    assert "learning rate tuned for each method" in record.conditions["Objective's own parameters"]
    assert "learning rate 0.0001" in record.conditions["Optimiser"]
    assert "not equal for all methods: classes, samples" in record.conditions["Batch"]
    assert "batch.samples = 1" in record.row_settings["N. Softmax"]
    assert "Contrastive" not in record.row_settings
    assert record.missing == {}


def test_an_unfinished_study_knows_the_runs_that_are_missing(finished, tmp_path):
    for name in ("study.toml", "data.json", "index.jsonl", "ledger.json"):
        shutil.copy(finished.folder / name, tmp_path / name)
    lines = (tmp_path / "index.jsonl").read_text().splitlines(keepends=True)
    last = max(k for k, line in enumerate(lines) if '{"outcome":' in line and '"role":"final"' in line)
    (tmp_path / "index.jsonl").write_text("".join(lines[:last] + lines[last + 1 :]))
    assert sum(load_study(tmp_path).missing.values()) == 1


def test_separated_accuracy_is_the_mean_of_the_folds_and_joined_that_of_the_embeddings_side_by_side(finished):
    record = finished.record
    runs = {run.fold: run for run in record.runs if (run.method, run.seed) == ("N. Softmax", 1)}
    separated = record.values_by_seed("N. Softmax", "map@r")[1]
    assert separated == pytest.approx((runs[0].metrics["map@r"] + runs[1].metrics["map@r"]) / 2)
    folders = [
        finished.folder / planned.folder
        for planned in StudyIndex(finished.folder).planned.values()
        if planned.key.method == "N. Softmax" and planned.key.seed == 1 and planned.key.role == "final"
    ]
    found = [embed_run(folder)[1] for folder in folders]
    side_by_side = torch.cat([torch.nn.functional.normalize(one.embeddings, dim=1) for one in found], 1)
    expected = em.evaluate(side_by_side, found[0].labels, metrics=["map@r", "recall@1"])
    (joined,) = (run for run in record.joined_runs if (run.method, run.seed) == ("N. Softmax", 1))
    assert joined.metrics["map@r"] == pytest.approx(expected["map@r"], abs=1e-6)
    assert joined.metrics["recall@1"] == pytest.approx(expected["recall@1"], abs=1e-6)
    assert joined.seconds == pytest.approx(runs[0].seconds + runs[1].seconds)


def test_scores_of_classes_average_to_the_metric(finished):
    for run in (*finished.record.runs, *finished.record.joined_runs):
        mean = float(run.per_class["map@r"] @ run.classes.weights())
        assert mean == pytest.approx(run.metrics["map@r"], abs=1e-9)


def test_the_index_alone_gives_the_same_tables(finished, tmp_path):
    for name in ("study.toml", "data.json", "index.jsonl", "ledger.json"):
        shutil.copy(finished.folder / name, tmp_path / name)
    tables = tables_of(finished.folder)
    # The logs and profiles of runs are in their folders alone.
    expected = {name: table for name, table in tables.items() if name not in ("training", "thresholds")}
    found = tables_of(tmp_path)
    found.pop("training", None)
    assert found == expected


def test_the_record_reads_back_into_frames(finished):
    frame = finished.record.frame()
    assert len(frame) == 3 + 8 + 4
    assert set(frame.kind) == {"baseline", "trained", "joined"}
    trials = finished.record.trials_frame()
    assert list(trials.method.value_counts()) == [3, 3]
    assert trials.query("method == 'Contrastive'").pos_margin.notna().all()


def test_a_finished_study_does_nothing_and_another_range_searches_again(finished, study):
    done = []
    again = em.compare(study, output=finished.folder.parent, watch=lambda job, *_: done.append(job))
    assert done == []
    assert str(again) == str(finished)
    search = {"pos_margin": {"uniform": [0.0, 0.5]}, "neg_margin": {"uniform": [0.0, 0.5]}}
    other = {"methods": {"Contrastive": {"search": search}, "N. Softmax": {}}}
    planned = []
    with pytest.raises(RuntimeError, match="enough"):
        em.compare(study, output=finished.folder.parent, overrides=other, begin=lambda plan: stop(plan, planned))
    assert {job.row for job in planned} == {"Contrastive"}
    assert all(job.key.trial == 0 for job in planned)
    em.compare(study, output=finished.folder.parent)


def stop(plan, planned):
    planned.extend(job for row in plan.rows for job in plan.ready_jobs(row))
    raise RuntimeError("enough")


def test_what_is_proposed_does_not_depend_on_where_a_study_was_cut(finished, study, tmp_path):
    """The index up to any line, as after a SIGKILL there: the same trials are left to do."""
    lines = (finished.folder / "index.jsonl").read_bytes().splitlines(keepends=True)
    chosen = {row: search.trials for row, search in finished.record.searches.items()}
    for end in range(5, len(lines), 3):
        folder = tmp_path / str(end) / "mini"
        folder.mkdir(parents=True)
        (folder / "index.jsonl").write_bytes(b"".join(lines[:end]))
        plan = em.studies.comparison.open_plan(study, output=folder.parent)
        for row, tried in chosen.items():
            done = plan.trials(plan.rows[row])
            assert done == list(tried[: len(done)])
            if len(done) < len(tried):
                assert all(job.params == tried[len(done)].params for job in plan.ready_jobs(row))


def run_command(file, output, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "equimetric", "compare", str(file), "--output", str(output), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("ended", [1, 8, 17, 24])
def test_a_study_that_is_killed_resumes_to_the_identical_tables(finished, study, tmp_path, ended):
    """SIGKILL to the whole session, in the search or among the final runs."""
    process = run_command(study, tmp_path, "--jobs", "2")
    file = tmp_path / "mini" / "index.jsonl"
    while process.poll() is None and not (file.exists() and file.read_bytes().count(b'"outcome"') >= ended):
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.communicate()
    em.compare(study, output=tmp_path, jobs=2)
    assert tables_of(tmp_path / "mini") == tables_of(finished.folder)


@pytest.mark.slow
def test_one_process_gives_the_same_tables(finished, study, tmp_path):
    em.compare(study, output=tmp_path, engine="serial", watch=ignore_progress)
    assert tables_of(tmp_path / "mini") == tables_of(finished.folder)


RAY = """
import json, sys
from ray.cluster_utils import Cluster
import ray, equimetric as em
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
ray.init(address=cluster.address, log_to_driver=False)
nodes = len(ray.nodes())
em.compare(sys.argv[1], output=sys.argv[2], jobs=2, engine="ray")
print(json.dumps({"nodes": nodes}))
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.slow
def test_tasks_of_a_ray_cluster_of_two_nodes_give_the_same_tables(finished, study, tmp_path):
    pytest.importorskip("ray")
    command = [sys.executable, "-c", RAY, str(study), str(tmp_path)]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert json.loads(result.stdout.splitlines()[-1])["nodes"] == 2
    assert tables_of(tmp_path / "mini") == tables_of(finished.folder)
    weights = sorted(Path(path).name for path in tmp_path.rglob("model.safetensors"))
    assert len(weights) == len(list(finished.folder.rglob("model.safetensors")))
