"""Sweeps, chains of runs and probes: what a study measures beyond its own table."""

import json
from dataclasses import replace

import numpy as np
import pytest
from study_plans import plan_of

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.evaluation.shift_curve import shift_curve
from equimetric.report import study_tables
from equimetric.report.probe_tables import shift_table
from equimetric.studies import load_study
from equimetric.studies.outcomes import Outcome
from equimetric.studies.probes.probe import PROBES, probe

STUDY = {
    "name": "small",
    "seeds": [0, 1],
    "baselines": [],
    "data": {"name": "glyphs", "options": {"minimum_faces": 16}},
    "model": {"dim": 8},
    "batch": {"classes": 4, "samples": 4},
    "training": {"steps": 2, "validate_every": 2, "log_every": 2},
    "evaluation": {"metrics": ["map@r"]},
    "methods": {"contrastive": {}},
}

ROUNDS = {
    "chain": True,
    "points": {
        f"round {number}": {"data.rounds": {"of": 4, "number": number, "keep": "latest"}} for number in range(1, 5)
    },
}


@pytest.fixture
def names_probe():
    """A probe that says what it was given."""

    @probe("names", title="Names")
    def measure(folders, progress):
        return {"runs": float(len(folders)), "seed": float(folders[0].name[0])}

    yield measure
    PROBES._records.pop("names")
    PROBES._modules.pop("names")


def test_a_sweep_trains_every_method_at_every_point_and_shares_equal_runs(tmp_path):
    sweeps = {"dim": {"key": "model.dim", "values": [4, 8]}}
    result = em.compare({**STUDY, "sweeps": sweeps, "sweep": ["dim"]}, output=tmp_path, engine="serial")
    points = {(run.point, run.seed) for run in result.record.sweep_runs}
    assert points == {("dim 4", 0), ("dim 4", 1), ("dim 8", 0), ("dim 8", 1)}
    own = {run.seed: run.metrics for run in result.record.runs}
    assert all(run.metrics == own[run.seed] for run in result.record.sweep_runs if run.point == "dim 8")
    assert len(list((tmp_path / "small" / "contrastive").iterdir())) == 4
    tables = study_tables(result.record)
    assert [name for name in tables if name.startswith("table")] == ["table", "table-dim-4", "table-dim-8"]


def test_runs_of_a_chain_wait_for_one_another_and_start_with_the_network_before(tmp_path):
    study = {**STUDY, "seeds": [0], "sweeps": {"rounds": ROUNDS}, "sweep": ["rounds"], "probes": ["forgetting"]}
    begun = []
    result = em.compare(
        study, output=tmp_path, engine="serial", watch=lambda job, step, _: step or begun.append((job.point, job.probe))
    )
    order = [point for point, name in dict.fromkeys(begun) if point.startswith("round") and not name]
    assert order == ["round 1", "round 2", "round 3", "round 4"]
    starts = sorted(
        config.read_text().partition('start = "')[2].partition('"')[0]
        for config in (tmp_path / "small" / "contrastive").glob("*/config.toml")
    )
    assert [bool(start) for start in starts] == [False, False, True, True, True]
    (probed,) = result.record.probe_runs
    assert "forgetting" in probed.metrics
    assert "test map@r after round 4" in probed.metrics
    again = load_study(tmp_path / "small")
    assert again.probe_runs[0].metrics == probed.metrics
    assert "probe-forgetting" in study_tables(again)


def test_probes_measure_every_final_run_once(tmp_path, names_probe):
    study = {**STUDY, "probes": ["names"]}
    result = em.compare(study, output=tmp_path, engine="serial")
    assert [(run.seed, run.metrics) for run in result.record.probe_runs] == [
        (0, {"runs": 1.0, "seed": 0.0}),
        (1, {"runs": 1.0, "seed": 1.0}),
    ]
    done = []
    em.compare(study, output=tmp_path, engine="serial", watch=lambda job, *_: done.append(job))
    assert done == []
    table = study_tables(result.record)["probe-names"]
    assert [cell.text for cell in table.rows[1].cells] == ["seed", "0.5000 ± 6.3531"]


def test_whole_data_sets_are_members_of_one_threshold(tmp_path):
    points = {
        "many faces": {"data.options": {"minimum_faces": 16}},
        "digits": {"data.name": "digits", "data.options": {}},
    }
    study = {
        **STUDY,
        "seeds": [0],
        "batch": {"classes": 3, "samples": 4},
        "sweeps": {"data-sets": {"points": points}},
        "sweep": ["data-sets"],
        "probes": ["data-sets"],
    }
    result = em.compare(study, output=tmp_path, engine="serial")
    (probed,) = result.record.probe_runs
    assert set(probed.metrics) == {f"{name} of data sets" for name in ("opis", "opis_far", "opis_frr")}
    assert all(value > 0 for value in probed.metrics.values())


def test_what_arms_and_cohorts_change_is_a_table(tmp_path):
    study = {
        **STUDY,
        "arms": {"tcm": {"add": "tcm"}},
        "evaluation": {"metrics": ["map@r", "opis"], "cohort": {"strength": 0.5}},
    }
    record = em.compare(study, output=tmp_path, engine="serial").record
    table = study_tables(record)["changes"]
    rows = {row.cells[0].text: row.cells for row in table.rows}
    assert list(rows) == ["contrastive+tcm, tcm added", "contrastive, cohort", "contrastive+tcm, cohort"]
    before, after = (record.values_by_seed(row, "opis") for row in ("contrastive", "contrastive+tcm"))
    expected = np.mean([(after[seed] - before[seed]) / before[seed] for seed in (0, 1)])
    assert rows["contrastive+tcm, tcm added"][2].data["opis_change"] == pytest.approx(expected)


def test_unknown_probes_are_one_sentence(tmp_path):
    with pytest.raises(EquimetricError, match="unknown probe 'fewshot'; did you mean 'few-shot'"):
        em.compare({**STUDY, "probes": ["fewshot"]}, output=tmp_path)


def test_the_area_under_a_growing_shift_is_a_table(tmp_path):
    sweeps = {"shift": {"key": "data.split.number", "values": [0, 1, 2]}}
    split = {"file": str(tmp_path / "x.json"), "number": 0}
    study = {**STUDY, "data": {"name": "digits", "split": split}, "sweeps": sweeps, "sweep": ["shift"]}
    plan = plan_of(study, tmp_path)
    values = {0: (0.5, 0.4, 0.2), 1: (0.6, 0.4, 0.1)}
    for job in plan.known_jobs():
        place = plan.points[job.point].get("data.split.number", 0)
        plan.index.record(Outcome(job.key, "done", metrics={"map@r": values[job.key.seed][place]}))
        plan.index.plan([plan.index_entry(job)])
    record = record_of(plan, {"number 0": 3.0, "number 1": 5.0, "number 2": 9.0})
    table = shift_table(record)
    expected = shift_curve([3.0, 5.0, 9.0], np.array(list(values.values())))
    assert table.rows[0].cells[-1].data["area"] == pytest.approx(expected.area.mean)
    assert "number 2 (distance 9)" in [column.name for column in table.columns]


def record_of(plan, shifts):
    """The record of a plan whose data are only a fingerprint."""
    from equimetric.checksums import json_document, toml_document
    from equimetric.configuration import to_toml

    (plan.folder / "study.toml").write_text(toml_document(to_toml(plan.study)))
    (plan.folder / "data.json").write_text(json_document({"fingerprint": "data", "shifts": shifts}))
    return replace(load_study(plan.folder), galleries={})


@pytest.mark.slow
def test_conditions_and_few_shot_adaptation_of_a_study(tmp_path):
    study = {**STUDY, "seeds": [0], "probes": ["conditions", "few-shot"]}
    record = em.compare(study, output=tmp_path, engine="serial").record
    by_name = {run.point: run.metrics for run in record.probe_runs}
    assert len([name for name in by_name["conditions"] if name.startswith("map@r under ")]) == 24
    assert "relative drop of map@r, corruptions" in by_name["conditions"]
    assert {"map@r before 5 shots", "map@r after 5 shots"} <= set(by_name["few-shot"])
    openings = (tmp_path / "small").rglob("openings.jsonl")
    commands = [json.loads(line)["command"] for file in openings for line in file.read_text().splitlines()]
    assert sorted(commands) == ["conditions probe", "few-shot probe"]
