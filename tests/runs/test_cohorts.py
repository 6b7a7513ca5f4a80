"""The cohort of a run: configured, or chosen on its validation classes and never on its test classes."""

import json
import warnings

import numpy as np
import pytest
import torch
from run_cases import configuration

import equimetric as em
from equimetric.configuration import load_config
from equimetric.errors import EquimetricWarning
from equimetric.evaluation import Cohort, choose_cohort, evaluate
from equimetric.runs.cohorts import RunCohorts
from equimetric.runs.configuration import CohortConfig, RunConfig
from equimetric.runs.data import RunData, load_run_data
from equimetric.runs.evaluation import CohortOverride, embed_run, evaluate_part
from equimetric.runs.folder import RunFolder
from equimetric.runs.result import RunResult
from equimetric.training import train

AUTO = {"strength": "auto", "form": "auto", "nearest": 5, "far": 0.1}
METRICS = ["recall@1", "map@r", "tar@far=1e-1", "opis"]


def run_config(features, cohort, metrics=METRICS):
    data = {"name": "features", "options": {"file": str(features)}}
    return configuration(data, evaluation={"metrics": metrics, "cohort": cohort})


def test_the_result_has_both_figures_and_the_cohort(features, tmp_path):
    trained = train(run_config(features, {"strength": 0.75, "nearest": 5}), folder=tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert stored["cohort"]["part"] == "train"
    assert (stored["cohort"]["strength"], stored["cohort"]["form"], stored["cohort"]["nearest"]) == (0.75, "mean", 5)
    assert stored["cohort"]["tried"] == []
    assert set(stored["plain"]) == set(stored["metrics"]) == set(METRICS)
    assert stored["plain"] != stored["metrics"]
    assert RunFolder(tmp_path / "run").result() == trained.result

    _, found = embed_run(tmp_path / "run")
    train_embeddings = embed_run(tmp_path / "run", "train")[1].embeddings
    for strength, figures in ((0.75, trained.metrics), (0.0, trained.result.plain)):
        cohort = Cohort(train_embeddings, strength=strength, nearest=5)
        assert dict(evaluate(found.embeddings, found.labels, metrics=METRICS, cohort=cohort)) == dict(figures)


def test_what_is_auto_is_chosen_on_the_validation_classes(features, tmp_path):
    trained = train(run_config(features, AUTO), folder=tmp_path / "run")
    setting = trained.result.cohort
    parts = {part: embed_run(tmp_path / "run", part)[1] for part in ("train", "validation")}
    embeddings, labels = parts["validation"].embeddings, parts["validation"].labels
    candidates = {"train": Cohort(parts["train"].embeddings, parts["train"].labels, nearest=5)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EquimetricWarning)
        choice = choose_cohort(embeddings, labels, candidates, far=0.1)
    assert [(one.form, one.strength, one.tar, one.error, one.is_default) for one in setting.tried] == [
        (one.form, one.strength, one.tar, one.error, one is choice.default) for one in choice.trials
    ]
    best = choice.best
    assert (setting.part, setting.form, setting.strength) == ("train", best.form, best.strength)
    assert (setting.far, setting.nearest) == (0.1, 5)


def test_the_choice_never_sees_the_test_classes(features, tmp_path, monkeypatch):
    seen, images = [], RunData.images
    monkeypatch.setattr(RunData, "images", lambda data, part: seen.append(part) or images(data, part))
    trained = train(run_config(features, AUTO), folder=tmp_path / "run")
    seen.clear()
    data = load_run_data(trained.config.data)
    setting = RunCohorts(trained.learner, data).choose(CohortConfig(**AUTO))
    assert set(seen) == {"train", "validation"}
    assert setting == trained.result.cohort

    with np.load(features) as stored:
        arrays = dict(stored)
    test = np.isin(arrays["labels"], data.dataset.labels[data.split.test].unique().numpy())
    arrays["features"][test] = np.random.default_rng(1).normal(size=arrays["features"][test].shape)
    np.savez(features, **arrays)
    other = train(run_config(features, AUTO), folder=tmp_path / "other")
    assert other.result.cohort == trained.result.cohort
    assert other.metrics != trained.metrics


def test_a_narrow_cohort_is_a_note(features, tmp_path):
    trained = train(run_config(features, {"strength": 0.5}), folder=tmp_path / "run")
    (note,) = (note for note in trained.result.notes if "cohort" in note)
    assert note.startswith(f"The cohort has {trained.result.cohort.classes} classes; with fewer than 25")
    plain = train(run_config(features, {"strength": 0.0}), folder=tmp_path / "plain")
    assert not any("cohort" in note for note in plain.result.notes)


def test_results_without_these_fields_are_read(features, tmp_path):
    train(run_config(features, {"strength": 0.5}), folder=tmp_path / "run")
    file = tmp_path / "run" / "result.json"
    stored = json.loads(file.read_text())
    metrics = stored["metrics"]
    for name in ("cohort", "plain", "files", "checksum"):
        stored.pop(name, None)
    assert RunResult.parse(stored, "result").cohort is None
    file.write_text(json.dumps(stored))
    config, found = embed_run(tmp_path / "run")
    assert dict(evaluate_part(found, config.evaluation)) == metrics


def test_a_cohort_of_the_validation_classes_leaves_the_own_class_out(features, tmp_path):
    train(run_config(features, None), folder=tmp_path / "run")
    _, plain = embed_run(tmp_path / "run", "validation")
    assert plain.cohort is None
    _, found = embed_run(tmp_path / "run", "validation", cohort=CohortOverride("validation", 1.0))
    assert found.cohort.labels.tolist() == found.labels.tolist()
    queries, _ = found.cohort.extend(found.embeddings, found.labels)
    unit = torch.nn.functional.normalize(found.embeddings)
    for row in range(0, len(unit), 7):
        others = unit[found.labels != found.labels[row]] @ unit[row]
        assert float(queries[row, -2]) == pytest.approx(-0.5 * float(others.topk(min(50, len(others))).values.mean()))


def test_the_command_line_overrides_the_cohort(features, tmp_path, equimetric):
    trained = train(run_config(features, AUTO), folder=tmp_path / "run")

    def printed(*options):
        code, out, error = equimetric("evaluate", tmp_path / "run", "--json", *options)
        assert code == 0, error
        return json.loads(out)

    own = printed()
    assert {name: own[name] for name in METRICS} == dict(trained.metrics)
    zero = printed("--cohort-strength", "0")
    assert {name: zero[name] for name in METRICS} == trained.result.plain
    none = printed("--cohort", "none")
    assert none["geometry"] == "cosine"
    assert none["map@r"] == trained.result.plain["map@r"]
    full = printed("--cohort", "both", "--cohort-strength", "1", "--cohort-form", "full")
    assert full["geometry"] == "cosine, full cohort"
    code, _, error = equimetric("evaluate", tmp_path / "run", "--cohort", "trian")
    assert code == 2
    assert "unknown cohort of a run 'trian'; did you mean 'train'" in error


def test_calibrating_a_run_uses_its_cohort(features, tmp_path, equimetric):
    train(run_config(features, {"part": "both", "strength": 1.0, "nearest": 5}), folder=tmp_path / "run")
    _, found = embed_run(tmp_path / "run")
    expected = em.calibrate(found.embeddings, found.labels, far=0.2, cohort=found.cohort)
    code, out, error = equimetric("calibrate", tmp_path / "run", "--far", "0.2", "--json")
    assert code == 0, error
    printed = json.loads(out)
    assert printed["threshold"] == expected.threshold
    assert printed["cohort"] == expected.cohort.to_dict()
    _, out, _ = equimetric("calibrate", tmp_path / "run", "--far", "0.2", "--json", "--cohort", "none")
    assert json.loads(out)["threshold"] == em.calibrate(found.embeddings, found.labels, far=0.2).threshold


@pytest.mark.filterwarnings("ignore::equimetric.errors.EquimetricWarning")
def test_identifying_in_a_run_uses_its_cohort(features, tmp_path, equimetric):
    train(run_config(features, {"part": "both", "strength": 1.0, "nearest": 5}), folder=tmp_path / "run")
    _, found = embed_run(tmp_path / "run")
    labels = found.labels.numpy()
    first, second = np.triu_indices(len(labels), 1)
    rows = zip(first, second, labels[first] == labels[second], strict=True)
    (tmp_path / "list.csv").write_text("\n".join(["id_a,id_b,same", *(f"{a},{b},{int(same)}" for a, b, same in rows)]))
    for options, cohort in ([], found.cohort), (["--cohort", "none"], None):
        code, out, error = equimetric("identify", tmp_path / "run", "--by", "mean", "--fpir", "0.2", "--json", *options)
        assert code == 0, error
        expected = em.evaluate_identification(found.embeddings, labels, by="mean", fpir=0.2, cohort=cohort)
        assert json.loads(out)["rates"] == expected.to_dict()["rates"]
        code, out, error = equimetric("evaluate", tmp_path / "run", "--trials", tmp_path / "list.csv", *options)
        assert code == 0, error
        assert (
            repr(em.evaluate_trials(found.embeddings, None, tmp_path / "list.csv", labels=labels, cohort=cohort)) in out
        )
    task = ["--task", "identification", "--fpir", "0.5", "--folds", "3", "--json"]
    code, out, error = equimetric("calibrate", tmp_path / "run", *task)
    assert code == 0, error
    printed = json.loads(out)
    assert printed["cohort"]["sha256"] == found.cohort.fingerprint
    assert len(printed["model"]) == 64


def test_checking_a_run_with_another_cohort_than_its_own(features, tmp_path, equimetric):
    train(run_config(features, None), folder=tmp_path / "run")
    given = ("--cohort", "both", "--cohort-strength", "0.75", "--out", tmp_path / "threshold.json")
    code, _, error = equimetric("calibrate", tmp_path / "run", "--far", "0.2", *given)
    assert code == 0, error
    code, _, error = equimetric("check", tmp_path / "threshold.json", tmp_path / "run", "--cohort", "both")
    assert code == 0, error
    for options, expected in (
        ((), "give the same cohort by --cohort"),
        (("--cohort", "train"), "for a cohort with sha256"),
    ):
        code, _, error = equimetric("check", tmp_path / "threshold.json", tmp_path / "run", *options)
        assert code == 2
        assert expected in error
    equimetric("calibrate", tmp_path / "run", "--far", "0.2", "--out", tmp_path / "plain.json")
    code, _, error = equimetric("check", tmp_path / "plain.json", tmp_path / "run", "--cohort", "both")
    assert code == 2
    assert "leave --cohort out" in error


@pytest.mark.parametrize("part", ["validation", "both"])
@pytest.mark.parametrize("chosen", ["strength", "form"])
def test_nothing_is_chosen_on_the_classes_of_the_cohort(part, chosen, features):
    """Validation classes as the cohort of themselves chose up to a third of the true accept rate away on others."""
    with pytest.raises(em.EquimetricError, match=f"the cohort part '{part}' has the validation classes, on which"):
        load_config(run_config(features, {"part": part, chosen: "auto"}), RunConfig)
    load_config(run_config(features, {"part": part, "strength": 1.0, "form": "full"}), RunConfig)


@pytest.mark.parametrize(
    "cohort",
    [
        {"part": "auto"},
        {"part": "test"},
        {"strength": "much"},
        {"strength": 2},
        {"form": "half"},
        {"far": 0},
        {"nearest": 0},
    ],
)
def test_wrong_values_are_errors(cohort, features):
    with pytest.raises(em.EquimetricError, match="cohort"):
        load_config(run_config(features, cohort), RunConfig)


def test_studies_show_both(features, tmp_path):
    study = {
        "name": "both",
        "seeds": [0],
        "methods": {"Contrastive": {"method": "contrastive"}},
        **{
            key: value
            for key, value in run_config(features, {"strength": 0.5}).items()
            if key not in ("method", "seed")
        },
    }
    comparison = em.compare(study, output=tmp_path)
    headings = [column.metric for column in comparison.table.columns]
    assert headings == [name for one in ("map@r", "recall@1", "tar@far=1e-1", "opis") for name in (one, f"{one} plain")]
    run = next(run for run in comparison.record.runs if run.kind == "trained")
    assert run.metrics["map@r plain"] != run.metrics["map@r"]
    assert any("without the cohort" in note for note in comparison.table.footnotes)
    assert "cohort of the train classes, mean form, strength 0.5" in comparison.record.conditions["Evaluation"]


def test_a_cohort_of_classes_that_are_set_aside(features, tmp_path):
    lists = {"train": range(6), "validation": (6, 7), "cohort": (8, 9), "test": (10, 11)}
    lists = {part: [str(label) for label in labels] for part, labels in lists.items()}
    config = run_config(features, {"part": "cohort", "strength": 0.5, "nearest": 3})
    trained = train(load_config(config, RunConfig, {"data.parts": lists}), folder=tmp_path / "run")
    assert (trained.result.cohort.part, trained.result.cohort.classes) == ("cohort", 2)
    of_cohort = embed_run(tmp_path / "run", "cohort")[1].embeddings
    _, found = embed_run(tmp_path / "run")
    cohort = Cohort(of_cohort, strength=0.5, nearest=3)
    assert dict(evaluate(found.embeddings, found.labels, metrics=METRICS, cohort=cohort)) == dict(trained.metrics)
