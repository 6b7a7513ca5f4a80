"""What a study leaves on disk is enough for its report, whatever became of its data and weights."""

import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import equimetric as em
from equimetric.backbones import build_backbone
from equimetric.checksums import json_document
from equimetric.report import render_html
from equimetric.runs.key import RunKey
from equimetric.studies import load_study
from equimetric.studies.configuration import StudyConfig
from equimetric.studies.index import PlannedRun, StudyIndex, format_line
from equimetric.studies.store import name_data

STUDY = {
    "name": "small",
    "seeds": [0],
    "workers": 1,
    "model": {"dim": 4},
    "batch": {"classes": 2, "samples": 2},
    "training": {"steps": 2, "validate_every": 2, "log_every": 2},
    "methods": {"contrastive": {}},
}


@pytest.fixture
def features(tmp_path):
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 6)
    vectors = (generator.normal(size=(12, 9))[labels] + generator.normal(size=(72, 9))).astype(np.float32)
    np.savez(tmp_path / "features.npz", features=vectors, labels=labels)
    return tmp_path / "features.npz"


def study_of(file, **tables):
    return {**STUDY, "data": {"name": "features", "options": {"file": str(file)}}, **tables}


def write_old_index(folder):
    """The index as an older version wrote it, in place of the present one."""
    runs = [asdict(run) for run in StudyIndex(folder).planned.values()]
    (folder / "index.json").write_text(
        json_document({"runs": [{k: run[k] for k in ("key", "folder")} for run in runs]})
    )
    (folder / "index.jsonl").unlink()


def metrics_of(record):
    return [(run.method, run.seed, dict(run.metrics)) for run in record.runs]


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        ("features", {"file": "vectors/birds.npz"}, "birds"),
        ("manifest", {"file": "grocery/labels.csv"}, "grocery"),
        ("manifest", {"file": "labels.csv"}, "small"),
        ("folder", {"root": "photos/"}, "photos"),
        ("glyphs", {}, "glyphs"),
    ],
)
def test_data_of_ones_own_is_called_by_its_folder_or_file(data, options, expected):
    assert name_data(StudyConfig(**{**STUDY, "data": {"name": data, "options": options}})) == expected


def test_the_report_needs_neither_data_nor_the_working_folder(features, tmp_path, monkeypatch):
    finished = em.compare(study_of(features), output=tmp_path / "runs")
    assert [run.method for run in finished.record.runs] == ["raw_features", "untrained", "contrastive"]
    features.rename(tmp_path / "elsewhere.npz")
    shutil.move(tmp_path / "runs", tmp_path / "moved")
    monkeypatch.chdir("/")
    again = load_study(tmp_path / "moved" / "small")
    assert metrics_of(again) == metrics_of(finished.record)
    assert "contrastive" in render_html(again)


def test_the_report_does_not_follow_replaced_weights(tmp_path):
    def write(seed):
        torch.manual_seed(seed)
        state = build_backbone("small_cnn", channels=1).state_dict()
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, tmp_path / "weights.safetensors")

    write(0)
    model = {"dim": 4, "frozen": True, "pretrained": str(tmp_path / "weights.safetensors")}
    study = {**STUDY, "data": {"name": "digits"}, "model": model}
    first = em.compare(study, output=tmp_path / "runs")
    assert [run.method for run in first.record.runs] == ["raw_pixels", "raw_features", "untrained", "contrastive"]
    write(1)
    assert metrics_of(load_study(tmp_path / "runs" / "small")) == metrics_of(first.record)
    second = em.compare(study, output=tmp_path / "runs")
    changed = dict(zip([run.method for run in first.record.runs], metrics_of(second.record), strict=True))
    for row in ("raw_features", "untrained", "contrastive"):
        assert changed[row] not in metrics_of(first.record)


@pytest.mark.parametrize("index", [True, False])
def test_a_study_of_an_older_version_is_read_with_its_index_or_without_one(features, tmp_path, index):
    finished = em.compare(study_of(features, seeds=[0, 1]), output=tmp_path)
    write_old_index(tmp_path / "small")
    if not index:
        (tmp_path / "small" / "index.json").unlink()
    assert sorted(metrics_of(load_study(tmp_path / "small")), key=str) == sorted(metrics_of(finished.record), key=str)


def test_the_table_has_the_usual_columns_or_those_of_the_study(features, tmp_path):
    usual = em.compare(study_of(features), output=tmp_path)
    assert usual.record.table_metrics == ("map@r", "r_precision", "recall@1")
    own = study_of(features, name="own", evaluation={"metrics": ["recall@1", "eer"], "selected_by": "recall@1"})
    record = em.compare(own, output=tmp_path).record
    assert record.table_metrics == ("recall@1", "eer")
    assert record.primary_metric == "recall@1"
    assert record.conditions["Evaluation"] == "cosine geometry, best weights by recall@1"


def test_methods_may_differ_in_their_learner(features, tmp_path):
    methods = {"contrastive": {}, "nothing": {"method": "contrastive", "learner": {"name": "untrained"}}}
    record = em.compare(study_of(features, methods=methods), output=tmp_path).record
    assert record.row_settings == {"nothing": "learner untrained"}
    rows = {run.method: run.metrics for run in record.runs}
    assert rows["nothing"] == rows["untrained"]


def test_principal_components_of_given_features_train(features, tmp_path):
    """`features` data with head_init = "pca" failed in every run, and the study said that it had finished."""
    record = em.compare(study_of(features, model={"dim": 4, "head_init": "pca"}), output=tmp_path).record
    assert [run.status for run in record.runs] == ["done"] * 3


def test_raw_pixels_are_pixels(tmp_path):
    study = {**STUDY, "data": {"name": "digits", "transform": "none"}}
    record = em.compare(study, output=tmp_path).record
    digits = em.load_dataset("digits")
    test = digits.labels >= 5
    expected = em.evaluate(digits.images[test].flatten(1).float() / 255, digits.labels[test], metrics=["map@r"])
    assert record.runs[0].method == "raw_pixels"
    assert record.runs[0].metrics["map@r"] == pytest.approx(expected["map@r"], abs=1e-9)


def test_tables_show_metrics_as_evaluate_does(features, tmp_path):
    evaluation = {"metrics": ["map@r", "opis"]}
    table = em.compare(study_of(features, evaluation=evaluation), output=tmp_path).table
    assert [column.heading for column in table.columns] == ["map@r (%)", "opis"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("index.json", "{"),
        ("index.json", "[{}]"),
        ("index.json", "null"),
        ("index.json", '[{"key": {}, "folder": "x"}]'),
        ("data.json", "{"),
        ("data.json", "[]"),
    ],
)
def test_damaged_files_of_a_study_are_one_sentence(features, tmp_path, file, content):
    em.compare(study_of(features), output=tmp_path)
    write_old_index(tmp_path / "small")
    (tmp_path / "small" / file).write_text(content)
    with pytest.raises(em.EquimetricError, match=r"is damaged .* it keeps the finished runs"):
        load_study(tmp_path / "small")


@pytest.mark.parametrize("old", [True, False])
def test_an_index_does_not_lead_out_of_its_folder(features, tmp_path, old):
    em.compare(study_of(features), output=tmp_path)
    folder = tmp_path / "small"
    if old:
        write_old_index(folder)
        runs = json.loads((folder / "index.json").read_text().replace('"folder": "', '"folder": "../small/'))["runs"]
        (folder / "index.json").write_text(json_document({"runs": runs}))
    else:
        planned = PlannedRun(RunKey("contrastive", 0, 0, None, "final", "x"), "", "../other")
        with (folder / "index.jsonl").open("a") as file:
            file.write(format_line({"planned": asdict(planned)}))
    with pytest.raises(em.EquimetricError, match="names a folder outside of the study"):
        load_study(folder)


def forbid(job, *_):
    raise AssertionError(f"{job.row} is done again, although its folder is whole")


def test_a_line_that_a_crash_cut_off_is_done_again_and_swallows_no_other(features, tmp_path):
    finished = em.compare(study_of(features, seeds=[0, 1]), output=tmp_path)
    file = tmp_path / "small" / "index.jsonl"
    content = file.read_bytes()
    for length in (len(content) - 7, len(content) // 2, 15):
        file.write_bytes(content[:length])
        with pytest.warns(UserWarning, match="is damaged in 1 of"):
            again = em.compare(study_of(features, seeds=[0, 1]), output=tmp_path, watch=forbid)
        assert metrics_of(again.record) == metrics_of(finished.record)
        assert metrics_of(load_study(tmp_path / "small")) == metrics_of(finished.record)


def test_a_damaged_line_is_a_warning_and_costs_nothing_else(features, tmp_path):
    finished = em.compare(study_of(features, seeds=[0, 1]), output=tmp_path)
    file = tmp_path / "small" / "index.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if b'"outcome"' in line)
    lines[number] = lines[number].replace(b"0", b"1")
    file.write_bytes(b"".join(lines))
    with pytest.warns(UserWarning, match=r"index\.jsonl is damaged in 1 of"):
        assert len(load_study(tmp_path / "small").runs) == len(finished.record.runs) - 1
    with pytest.warns(UserWarning, match=r"index\.jsonl is damaged in 1 of"):
        again = em.compare(study_of(features, seeds=[0, 1]), output=tmp_path)
    assert sorted(metrics_of(again.record), key=str) == sorted(metrics_of(finished.record), key=str)


def test_raw_features_that_are_given_have_one_run(features, tmp_path):
    record = em.compare(study_of(features, seeds=[0, 1]), output=tmp_path).record
    assert [run.seed for run in record.runs if run.method == "raw_features"] == [0]


def test_a_report_makes_do_without_neighbours_and_with_a_log_that_was_cut_off(tmp_path):
    study = {**STUDY, "data": {"name": "digits"}}
    finished = em.compare(study, output=tmp_path)
    for file in (tmp_path / "small").rglob("per_query.npz"):
        file.unlink()
    for file in (tmp_path / "small").rglob("metrics.jsonl"):
        file.write_text(file.read_text() + '{"kind": "tra')
    record = load_study(tmp_path / "small")
    assert metrics_of(record) == metrics_of(finished.record)
    assert record.galleries == {}


def test_raw_features_of_a_backbone_have_no_head(tmp_path):
    study = {**STUDY, "data": {"name": "digits"}, "baselines": ["raw_features", "untrained"]}
    sizes = {run.method: run.parameters for run in em.compare(study, output=tmp_path).record.runs}
    assert sizes["untrained"] - sizes["raw_features"] == 1792 * 4 + 4
