import errno
import json
from dataclasses import replace
from itertools import count

import pytest
from browser_window import NEEDS_CHROMIUM, open_browser
from page_walk import work_controls
from photos import write_photos

import equimetric as em
from equimetric.calibration import Certificate
from equimetric.configuration import load_config
from equimetric.errors import EquimetricError, StorageError
from equimetric.fitting import choice as choice_module
from equimetric.fitting import fit as fit_module
from equimetric.fitting.budget import Budget
from equimetric.fitting.choice import choose_candidate
from equimetric.fitting.configurations import run_toml, study_toml
from equimetric.fitting.fit import run_plan
from equimetric.fitting.plan import UNTRAINED, Candidate, make_plan, variations
from equimetric.runs.access_log import read_test_accesses
from equimetric.runs.configuration import RunConfig
from equimetric.runs.evaluation import CohortOverride
from equimetric.runs.evaluation_config import CohortConfig
from equimetric.runs.run_cache import RunCache
from equimetric.studies import load_study
from equimetric.studies.configuration import StudyConfig

SHORT = {"steps": 6, "validate_every": 3, "patience": 6}
CLASSES, IMAGES = 20, 11


def trials_of(fitted):
    return fitted.folder.with_name("model.fit") / "trials"


def short(plan, *methods):
    """The plan with a few steps, and only some methods."""
    candidates = tuple(map(Candidate, methods)) or plan.candidates
    return replace(plan, values={**plan.values, "training": SHORT}, candidates=candidates)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("data") / "photos", CLASSES, IMAGES)


@pytest.fixture(scope="module")
def plan(photos):
    return short(make_plan(photos, backbone="small_cnn"), "contrastive", "multi_similarity")


@pytest.fixture(scope="module")
def fitted(plan, tmp_path_factory):
    """A fit whose search ends with the base objectives."""
    patch = pytest.MonkeyPatch()
    patch.setattr(fit_module, "has_onnx", lambda: False)
    patch.setattr(choice_module, "MAX_CANDIDATES", 2)
    with patch.context(), fit_module.quiet_warnings():
        yield run_plan(plan, tmp_path_factory.mktemp("out") / "model", Budget(600), notify=lambda _: None)
    patch.undo()


def test_the_plan_says_what_is_merged_and_at_which_rate(plan):
    text = "\n".join(plan.describe())
    assert "9 train, 3 validation, 4 calibration, 4 test" in text
    assert "cohort normalisation by the training classes (mean form, strength 0.5)" in text
    assert "it is calibrated for 0.1" in text
    assert plan.far == 0.1


def test_the_plan_is_a_file_for_train_and_for_compare(plan, tmp_path):
    cohort = CohortOverride("train", 0.5, "mean")
    (tmp_path / "plan.toml").write_text(run_toml(plan, plan.candidates[0], cohort))
    (tmp_path / "study.toml").write_text(study_toml(plan, cohort))
    run = load_config(tmp_path / "plan.toml", RunConfig)
    assert run.method == "contrastive"
    assert run.data.parts == plan.parts.fold()
    study = load_config(tmp_path / "study.toml", StudyConfig)
    assert list(study.methods) == ["contrastive", "multi_similarity"]
    for one in (run, study):
        assert one.evaluation.cohort == CohortConfig(part="train", form="mean", strength=0.5)
    without = study_toml(plan, CohortOverride("none"))
    assert "[evaluation.cohort]" not in without
    assert "seeds = [0, 1, 2]" in without


def test_every_table_of_the_files_says_what_may_be_changed(plan):
    cohort = CohortOverride("train", 0.5, "mean")
    untrained = run_toml(plan, UNTRAINED[0], cohort)
    for text in (run_toml(plan, plan.candidates[0], cohort), study_toml(plan, cohort)):
        lines = text.splitlines()
        described = ("[data.parts]", "[model]", "[training]", "[evaluation]", "[evaluation.cohort]")
        assert all(lines[lines.index(table) - 1].startswith("# ") for table in described)
        assert max(len(line) for line in lines if line.startswith("#")) <= 120
        # Each comment once, and none above a key of a table that has the name of one of the file's own.
        comments = [line for line in lines if line.startswith("# ")]
        assert len(set(comments)) == len(comments)
        assert lines[lines.index("[data]") + 1].startswith("name = ")
    assert "remove [learner]" in untrained
    assert "--part calibration --far 0.1" in untrained


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_the_study_can_be_compared_from_any_folder(fitted, equimetric, tmp_path, monkeypatch, place):
    folder = tmp_path if place == "elsewhere" else fitted.folder
    monkeypatch.chdir(folder)
    text = (fitted.folder / "study.toml").read_text()
    (tmp_path / "study.toml").write_text(text.replace("seeds = [0, 1, 2]", "seeds = [0]"))
    code, _, error = equimetric("compare", tmp_path / "study.toml", "--output", tmp_path, "--engine", "serial")
    assert code == 0, error
    assert (tmp_path / "fit" / "report" / "index.html").exists()
    record = load_study(tmp_path / "fit")
    assert {run.method for run in record.runs} >= {"contrastive", "multi_similarity", "raw_features", "untrained"}
    raw = next(run.metrics for run in record.runs if run.method == "raw_features")
    # Both commands say the same of the same thing.
    assert raw["map@r"] == pytest.approx(fitted.outcome.raw["map@r"], abs=1e-12)


def test_the_model_is_an_exported_one_with_its_certificate(fitted, photos):
    model = em.load(fitted.folder)
    assert isinstance(model.certificate, Certificate)
    assert model.certificate.target_rate.far == 0.1
    assert model.certificate.data.classes == 4
    image = next(photos.rglob("*.png"))
    assert model.embed([image]).shape == (1, model.dim)
    names = {file.name for file in fitted.folder.iterdir()}
    assert {"plan.toml", "study.toml", "report.html", "model.safetensors", "certificate.json", "README.md"} <= names


def test_the_test_classes_are_opened_once_and_that_is_recorded(fitted):
    assert [access.command for access in read_test_accesses(fitted.run)] == ["train", "fit"]
    outcome = fitted.outcome
    assert outcome.classes == 4
    assert outcome.images == 4 * IMAGES
    own = em.load(fitted.run).metrics
    assert [outcome.fitted[name] for name in ("recall@1", "map@r")] == [own["recall@1"], own["map@r"]]
    assert set(outcome.raw) == set(outcome.fitted)
    assert [rate.name for rate in outcome.rates] == ["FAR", "FRR"]
    assert outcome.rates[0].bound is None  # four classes are too few for one


def test_the_plan_trained_and_exported_again_is_the_same_model(fitted, equimetric, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, error = equimetric("train", fitted.folder / "plan.toml", "--folder", "again")
    assert code == 0, error
    trained = em.load(tmp_path / "again")
    assert dict(trained.metrics) == dict(fitted.outcome.fitted)
    # As the file itself says.
    header = (fitted.folder / "plan.toml").read_text()
    (command,) = (line.split()[4:] for line in header.splitlines() if "equimetric export RUN model-2" in line)
    code, _, error = equimetric("export", "again", "second", *command[1:], "--no-onnx")
    assert code == 0, error
    first, second = (em.load(folder).certificate for folder in (fitted.folder, tmp_path / "second"))
    assert second.threshold == first.threshold
    assert second.model == first.model
    assert second.cohort == first.cohort


def test_the_report_is_one_page_without_paths(fitted, photos):
    page = (fitted.folder / "report.html").read_text()
    assert "opened once" in page
    assert "At the certified threshold: FAR" in page
    assert "class-00" in page
    assert str(photos.parent) not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


@NEEDS_CHROMIUM
def test_the_report_shows_nothing_wrong_in_a_browser(fitted):
    with open_browser() as browser:
        page, complaints = browser.new_page(), []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((fitted.folder / "report.html").as_uri())
        found = work_controls(page)
    assert [*complaints, *found["faults"]] == []
    assert found["worked"]["button"] == 1


def test_a_second_start_repeats_no_trial(fitted, plan, monkeypatch, tmp_path):
    def fail(*_, **__):
        raise AssertionError("a trial was repeated")

    monkeypatch.setattr(choice_module, "train_trial", fail)
    monkeypatch.setattr(choice_module, "MAX_CANDIDATES", 2)
    trials = trials_of(fitted)
    with fit_module.quiet_warnings():
        again = choose_candidate(plan, trials, Budget(600), RunCache())
    assert [one.scores for one in again.candidates] == [one.scores for one in fitted.choice.candidates]
    # Another seed is another trial.
    other = replace(plan, values={**plan.values, "seed": 1})
    with pytest.raises(AssertionError, match="a trial was repeated"), fit_module.quiet_warnings():
        choose_candidate(other, trials, Budget(600), RunCache())


def test_what_was_kept_is_used_where_the_time_is_up(fitted, plan, monkeypatch):
    monkeypatch.setattr(choice_module, "MAX_CANDIDATES", 2)
    ticks = count(step=100)
    with fit_module.quiet_warnings():
        choice = choose_candidate(plan, trials_of(fitted), Budget(300, lambda: float(next(ticks))), RunCache())
    assert not choice.timed_out
    assert [one.scores for one in choice.candidates] == [one.scores for one in fitted.choice.candidates]


def test_trials_that_were_kept_tell_how_long_others_take(fitted, plan, monkeypatch):
    kept = choice_module.try_fold(plan.run_config(plan.candidates[0]), trials_of(fitted), RunCache())
    monkeypatch.setattr(choice_module, "read_trial", lambda _: kept.model_copy(update={"seconds": 40.0}))
    tried = choice_module.try_candidate(plan, plan.candidates[0], trials_of(fitted), RunCache())
    assert tried.seconds == 120.0


def test_a_damaged_trial_is_made_again(plan, tmp_path, fitted):
    file = next(trials_of(fitted).iterdir())
    copy = tmp_path / file.name
    copy.write_text(file.read_text().replace("map@r", "map@s", 1))
    assert choice_module.read_trial(copy) is None
    assert choice_module.read_trial(file) is not None
    assert {json.loads(file.read_text())["steps"] for file in trials_of(fitted).iterdir()} == {0, 6}


def test_changed_images_make_other_trials_and_another_run(tmp_path, fitted, plan):
    root = write_photos(tmp_path / "photos", CLASSES, IMAGES, seed=1)
    changed = short(make_plan(root, backbone="small_cnn"), "contrastive")
    cache = RunCache()
    keys = [
        choice_module.trial_key(one.run_config(one.candidates[0]), cache.data(one.run_config(one.candidates[0])))
        for one in (plan, changed)
    ]
    assert keys[0].content != keys[1].content


def test_the_search_stops_where_the_time_is_up(plan, tmp_path):
    ticks = count(step=100)
    with fit_module.quiet_warnings():
        choice = choose_candidate(plan, tmp_path, Budget(300, lambda: float(next(ticks))), RunCache())
    assert choice.timed_out
    assert [one.candidate.name for one in choice.candidates] == ["raw features", "principal components", "contrastive"]


def test_what_needs_no_training_is_compared_on_the_same_folds(fitted, plan):
    names = [one.candidate.name for one in fitted.choice.candidates]
    assert names == ["raw features", "principal components", "contrastive", "multi_similarity"]
    start = fitted.choice.candidates[1]
    trials = [
        choice_module.try_fold(plan.run_config(plan.candidates[0], fold), trials_of(fitted), RunCache())
        for fold in range(3)
    ]
    for name in ("map@r", "tar@far=0.1"):
        # The start of a trained candidate is the untrained one.
        assert start.scores[name] == pytest.approx(sum(trial.history[0][name] for trial in trials) / 3, abs=1e-12)
    assert "without training, are compared in the same way" in "\n".join(plan.describe())


def test_neighbours_of_a_candidate_differ_in_one_key_and_can_be_trained(plan):
    best = Candidate("contrastive", (("optimizer.lr", 0.003),))
    found = [dict(one.changes) for one in variations(best, plan)]
    assert found[:2] == [{"optimizer.lr": 0.009}, {"optimizer.lr": 0.001}]
    most = min(plan.largest_dim(fold) for fold in range(3))
    assert all(one["optimizer.lr"] == 0.003 and 32 <= one["model.dim"] <= most for one in found[2:])


def test_a_folder_that_is_there_is_refused_at_once(fitted, photos, equimetric):
    code, _, error = equimetric("fit", photos, "--out", fitted.folder)
    assert code == 2
    assert "is there already" in error


def test_a_full_disk_is_one_sentence(plan, tmp_path, monkeypatch):
    def full(file, _):
        raise OSError(errno.ENOSPC, "No space left on device", str(file))

    monkeypatch.setattr(choice_module, "write_atomically", full)
    with pytest.raises(StorageError, match="the disk is full; make room there"), fit_module.quiet_warnings():
        run_plan(plan, tmp_path / "model", Budget(600), notify=lambda _: None)
    assert not (tmp_path / "model").exists()


def test_a_dry_run_prints_the_plan_and_writes_nothing(photos, equimetric, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, printed, _ = equimetric("fit", photos, "--dry-run", "--backbone", "small_cnn")
    assert code == 0
    assert "220 images of 20 classes" in printed
    assert "objective: multi_similarity_miner, arcface, contrastive, proxy_anchor" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_does_all_of_it(equimetric, tmp_path):
    root = write_photos(tmp_path / "photos", classes=44, images=10)
    out = tmp_path / "model"
    code, printed, error = equimetric("fit", root, "--out", out, "--minutes", "5", "--backbone", "small_cnn")
    assert code == 0, error
    assert "44 classes" in printed
    assert "test classes, 70 images, opened once" in printed
    assert "At the certified threshold: FAR" in printed
    assert em.load(out).certificate.new_classes.far is not None
    with pytest.raises(EquimetricError, match="is there already"):
        em.fit_model(root, out, backbone="small_cnn")
