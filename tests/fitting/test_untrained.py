import math
from dataclasses import replace
from statistics import fmean
from types import MappingProxyType

import pytest
from photos import write_photos

import equimetric as em
from equimetric.fitting import choice as choice_module
from equimetric.fitting import fit as fit_module
from equimetric.fitting.budget import Budget
from equimetric.fitting.choice import CandidateChoice, ScoredCandidate
from equimetric.fitting.fit import describe_training, run_plan
from equimetric.fitting.outcome import FitOutcome
from equimetric.fitting.plan import UNTRAINED, Candidate, make_plan

RAW, START = UNTRAINED
ARCFACE = Candidate("arcface")


def choice_of(recalls=MappingProxyType({}), **values):
    candidates = {"raw": RAW, "start": START, "arcface": ARCFACE}
    folds = {name: value if isinstance(value, tuple) else (value,) * 3 for name, value in values.items()}
    tried = [
        ScoredCandidate(candidates[name], {"map@r": fmean(each), "recall@1": recalls.get(name, 0.9)}, each, 1.0)
        for name, each in folds.items()
    ]
    return CandidateChoice(tuple(tried))


def test_training_must_be_better_than_none():
    assert choice_of(raw=0.4, start=0.5, arcface=0.6).best.candidate == ARCFACE
    assert choice_of(raw=0.4, start=0.5, arcface=0.6).describe() == "chosen: arcface"
    # Equal is not better.
    assert choice_of(raw=0.4, start=0.5, arcface=0.5).best.candidate == START


def test_a_gain_must_be_beyond_its_standard_error():
    # Gains of 1, 3 and 11 points: 5 on average, their standard error √28/√3 = 3.06.
    raw = (0.40, 0.50, 0.60)
    assert choice_of(raw=raw, arcface=(0.41, 0.53, 0.71)).best.candidate == ARCFACE
    # Gains of −4, 1 and 9: 2 on average, their standard error √43/√3 = 3.79.
    choice = choice_of(raw=raw, start=(0.40, 0.50, 0.59), arcface=(0.36, 0.51, 0.69))
    assert choice.leader.candidate == ARCFACE
    assert choice.best.candidate == RAW
    assert choice.leader.gain(choice.best) == pytest.approx((0.02, math.sqrt(0.0043 / 3)))
    assert "on validation classes arcface gains 2.00% in the mean of MAP@R and TAR, no more than" in choice.describe()
    assert "standard error of 3.79%" in choice.describe()
    # The scores of the folds differ by far more than the gains, which are what counts.
    assert choice_of(raw=(0.1, 0.5, 0.9), start=(0.11, 0.51, 0.92)).best.candidate == START


def test_a_candidate_that_loses_more_than_half_a_point_of_recall_is_left_out():
    proxy = Candidate("proxy_anchor")
    values = {"raw": 0.4, "start": 0.5, "arcface": 0.6}
    assert choice_of({"arcface": 0.8951}, **values).best.candidate == ARCFACE
    choice = choice_of({"arcface": 0.8949}, **values)
    assert choice.best.candidate == START
    assert choice.describe().endswith(
        "; left out, because they lose Recall@1 to raw features on validation classes: arcface (0.5%)"
    )
    choice = choice_of({"arcface": 0.88, "start": 0.89}, **values)
    assert choice.best.candidate == RAW
    assert choice.describe() == (
        "chosen: raw features, without training; left out, because they lose Recall@1 to raw features on validation "
        "classes: principal components (1.0%), arcface (2.0%)"
    )
    # The search goes on from the best that keeps Recall@1.
    better = ScoredCandidate(proxy, {"map@r": 0.55, "recall@1": 0.9}, (0.55,) * 3, 1.0)
    choice = CandidateChoice((*choice.candidates, better))
    assert choice.best_trained.candidate == choice.best.candidate == proxy
    assert choice.describe().startswith("chosen: proxy_anchor; left out")


def test_the_reason_for_no_training_is_one_sentence():
    choice = choice_of(raw=0.6, start=0.5, arcface=0.55)
    assert choice.best.candidate == RAW
    assert choice.best_trained.candidate == ARCFACE
    assert choice.describe() == (
        "chosen: raw features, without training, because no trained candidate was better on validation classes: "
        "60.00% in the mean of MAP@R and TAR, against 55.00% by arcface"
    )


def test_a_model_below_raw_features_on_the_test_classes_is_called_so():
    raw = {"recall@1": 0.9, "map@r": 0.8, "tar@far=0.01": 0.5, "opis_far": 0.001}
    outcome = FitOutcome(raw, {}, {**raw, "map@r": 0.7, "opis_far": 0.002}, (), 5, 50)
    assert list(outcome.sentences()) == [
        "On these test classes the fitted model is below raw features: map@r 70.00% against 80.00%."
    ]
    both = replace(outcome, fitted={**raw, "map@r": 0.7, "tar@far=0.01": 0.4})
    assert "map@r 70.00% against 80.00%, tar@far=0.01 40.00% against 50.00%." in both.shortfall()
    assert replace(outcome, fitted={**raw, "recall@1": 0.8}).shortfall() == ""


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A fit whose classes are as far apart as can be before training, so that no objective is better."""
    folder = tmp_path_factory.mktemp("untrained")
    plan = make_plan(write_photos(folder / "photos", 20, 11), backbone="small_cnn")
    training = {"steps": 4, "validate_every": 4, "patience": 4}
    plan = replace(plan, values={**plan.values, "training": training}, candidates=(Candidate("contrastive"),))
    said = []
    with pytest.MonkeyPatch.context() as patch, fit_module.quiet_warnings():
        patch.setattr(fit_module, "has_onnx", lambda: False)
        patch.setattr(choice_module, "MAX_CANDIDATES", 3)
        yield run_plan(plan, folder / "model", Budget(600), notify=said.append), said


def test_what_no_training_beats_is_exported(fitted):
    model, said = fitted
    assert model.choice.best.candidate == RAW
    assert em.load(model.run).result.steps == 0
    assert any("without training, because no trained candidate was better" in sentence for sentence in said)
    assert any(sentence.startswith("nothing to train; ") for sentence in said)
    page = (model.folder / "report.html").read_text()
    assert "without training, because no trained candidate was better" in page


def test_it_is_a_model_like_any_other(fitted):
    model, _ = fitted
    exported = em.load(model.folder)
    image = model.folder.parent / "photos" / "class-00" / "0.png"
    assert math.isclose(float((exported.embed([image]) ** 2).sum()), 1.0, rel_tol=1e-5)
    trained = em.train(model.folder / "plan.toml", folder=model.folder.parent / "again")
    assert dict(trained.metrics) == dict(model.outcome.fitted)
    assert model.outcome.plain == pytest.approx(model.outcome.raw, abs=1e-9)
    assert model.outcome.shortfall() == ""


def test_a_start_that_no_step_improves_is_called_so(fitted):
    model, _ = fitted
    result = em.load(model.run).result
    assert describe_training(result) == "nothing to train"
    assert "none better than the start" in describe_training(result.model_copy(update={"steps": 300}))
    trained = result.model_copy(update={"steps": 300, "best_step": 100})
    assert describe_training(trained) == "trained 300 steps, the best 100"
