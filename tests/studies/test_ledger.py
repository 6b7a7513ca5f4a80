"""The ledger of a study: unfair conditions are refused by name, declared and waived ones are said."""

import example_learners  # noqa: F401  (registers a learner of twice as many dimensions)
import pytest
import torch

from equimetric.configuration import load_config
from equimetric.data import Dataset, Split, transform
from equimetric.errors import DamagedFileError, EquimetricError
from equimetric.runs.configuration import Conditions, RunConfig
from equimetric.runs.data import RunData
from equimetric.runs.key import IRRELEVANT_KEYS
from equimetric.studies.ledger import Ledger, check_conditions, check_fairness, check_selection
from equimetric.studies.ledger.conditions import flatten
from equimetric.studies.ledger.factors import FACTORS, METHOD_KEYS, find_factor

BASE = {
    "data": {"name": "digits", "transform": "none"},
    "model": {"dim": 4},
    "batch": {"classes": 2, "samples": 2},
    "optimizer": {"warmup_steps": 0},
    "training": {"steps": 20},
}


def runs_of(method, *, seeds=(0, 1), **changes):
    given = {key.replace("__", "."): value for key, value in changes.items()}
    return [load_config({**BASE, "method": method, "seed": seed}, RunConfig, given) for seed in seeds]


@pytest.fixture
def data():
    """Eight classes of four random images; no two are alike."""
    images = torch.randint(0, 256, (32, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(8).repeat_interleave(4)
    dataset = Dataset("noise", images, labels, tuple(f"class {label}" for label in range(8)), {}, {})
    rows = torch.arange(32)
    return RunData(dataset, Split(rows[:12], rows[12:20], rows[20:]), transform("none"))


@pytest.fixture
def runs():
    baselines = {name: runs_of(name, learner={"name": name}) for name in ("raw_pixels", "untrained")}
    return {**baselines, **{name: runs_of(name) for name in ("contrastive", "margin", "arcface")}}


def refusal(*arguments, **options):
    with pytest.raises(EquimetricError) as refused:
        check_fairness("study", *arguments, **options).raise_unfair()
    return str(refused.value)


def test_equal_conditions_are_fair(runs, data):
    ledger = check_fairness("study", runs, [data])
    ledger.raise_unfair()
    assert ledger.verdict == "fair"
    assert ledger.sentence == "Fair: none of the 6 causes of unfair comparison was found."
    assert [entry.factor for entry in ledger.entries] == list(FACTORS)
    assert ledger.footnotes() == ledger.notes == ()


def test_another_dimension_is_refused(runs, data):
    message = refusal({**runs, "margin": runs_of("margin", model__dim=8)}, [data])
    assert "embedding dimension (model.dim is 4 for untrained, contrastive, arcface; 8 for margin)" in message
    assert "give every method the same embedding dimension, or as many bits" in message
    assert '[waivers] dimension = "reason"' in message


def test_a_run_of_another_dimension_inside_a_row_is_refused(runs, data):
    odd = [*runs_of("margin", seeds=[0]), *runs_of("margin", seeds=[1], model__dim=8)]
    assert "8 for margin, seed 1" in refusal({**runs, "margin": odd}, [data])


def test_an_embedding_that_a_learner_makes_larger_is_refused(runs, data):
    message = refusal({**runs, "margin": runs_of("margin", learner={"name": "everything"})}, [data])
    assert "model.dim is 4 for untrained, contrastive, arcface; 8 for margin" in message


def test_equal_bits_are_accepted(runs, data):
    signs = runs_of("margin", model__dim=128, evaluation__binarise=True)
    ledger = check_fairness("study", {**runs, "margin": signs}, [data])
    ledger.raise_unfair()
    assert ledger["dimension"].status == "equal"
    assert ledger["dimension"].finding == "dim 4 or 128 signs, equal bits"


def test_signs_of_the_same_dimension_are_fewer_bits(runs, data):
    message = refusal({**runs, "margin": runs_of("margin", evaluation__binarise=True)}, [data])
    assert "evaluation.binarise is 4 for untrained, contrastive, arcface; 4 signs for margin" in message


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("training.steps", 30, "training budget (training.steps is 20 for contrastive, arcface; 30 for margin)"),
        ("training.patience", 500, "training budget (training.patience is not set for contrastive, arcface; 500 for"),
        ("model.backbone", "bn_inception", "architecture (model.backbone is small_cnn for untrained, contrastive,"),
        ("data.transform", "affine", "augmentation (data.transform is none for raw_pixels, untrained, contrastive"),
        ("optimizer.name", "sgd", "optimiser (optimizer.name is adamw for contrastive, arcface; sgd for margin)"),
        ("model.frozen_batch_norm", True, "batch normalisation (model.frozen_batch_norm is false for untrained"),
        ("batch.samples", 4, "batch (batch.samples is 2 for contrastive, arcface; 4 for margin)"),
        ("evaluation.geometry", "euclidean", "normalisation (evaluation.geometry is cosine for raw_pixels"),
        ("evaluation.ks", [1], "evaluation (evaluation.ks is not set for raw_pixels"),
        ("data.fold", 1, "data (data.fold is 0 for contrastive, arcface; 1 for margin)"),
        ("training.precision", "float64", "computation (training.precision is float32 for contrastive"),
        ("optimizer.groups", {"adversary": {"lr": 0.1}}, "optimizer.groups.adversary.lr is not set for contrastive"),
    ],
)
def test_other_conditions_are_refused(runs, data, key, value, fault):
    changed = {**runs, "margin": [load_config(run, RunConfig, {key: value}) for run in runs["margin"]]}
    assert fault in refusal(changed, [data])


@pytest.mark.parametrize("key", ["options.beta", "optimizer.objective_lr"])
def test_what_belongs_to_the_method_may_differ(runs, data, key):
    changed = {**runs, "margin": [load_config(run, RunConfig, {key: 0.5}) for run in runs["margin"]]}
    assert check_fairness("study", changed, [data]).verdict == "fair"


def test_other_weights_of_the_same_backbone_are_refused(runs, data, tmp_path):
    for name in ("first", "second", "copy_of_first"):
        (tmp_path / f"{name}.pth").write_bytes(name.removeprefix("copy_of_").encode())

    def pretrained(method, name, **changes):
        return runs_of(method, model__pretrained=str(tmp_path / f"{name}.pth"), **changes)

    rows = {
        "contrastive": pretrained("contrastive", "first"),
        "margin": pretrained("margin", "copy_of_first"),
        "untrained": pretrained("untrained", "first", learner={"name": "untrained"}),
    }
    assert check_fairness("study", rows, [data])["architecture"].status == "equal"
    message = refusal({**rows, "arcface": pretrained("arcface", "second")}, [data])
    assert "architecture (model.pretrained is sha256 " in message
    assert "for arcface); train every method on one backbone with the same initial weights" in message


def test_an_unequal_tuning_budget_is_refused(runs, data):
    trials = {"contrastive": 50, "margin": 50, "arcface": 10}
    message = refusal(runs, [data], trials=trials)
    assert "tuning budget (trials is 50 for contrastive, margin; 10 for arcface); tune every method" in message
    assert "0 for arcface" in refusal(runs, [data], trials={"contrastive": 50, "margin": 50})
    check_fairness("study", runs, [data], trials={**trials, "arcface": None}).raise_unfair()


def test_test_feedback_is_refused(runs, data, tmp_path):
    message = refusal(runs, [data], selected_on="test")
    assert "test feedback (weights and hyper-parameters are selected by map@r of the test classes)" in message
    assert "choose epochs, hyper-parameters and cohorts on validation classes" in message
    trial = tmp_path / "margin" / "t7-0-abc"
    trial.mkdir(parents=True)
    (trial / "openings.jsonl").write_text('{"command": "evaluate", "date": "2026-01-31T12:00:00+00:00"}\n')
    quiet = tmp_path / "margin" / "t8-0-abd"
    message = refusal(runs, [data], trial_folders=[trial, quiet])
    assert "test classes were opened by 1 trials of the search: margin/t7-0-abc" in message


def test_training_on_the_test_classes_is_refused(runs):
    deployed = runs_of("margin", refit={"classes": "all", "steps": 5, "source": "0"})
    entry = check_selection({**runs, "margin": deployed})
    assert (entry.status, entry.methods) == ("violated", ("margin",))
    assert entry.finding == "trained on the test classes: margin"


def test_one_seed_is_unfair_and_not_refused(runs, data):
    ledger = check_fairness("study", {row: configs[:1] for row, configs in runs.items()}, [data])
    ledger.raise_unfair()
    assert ledger.sentence == "Not fair: 1 of 6 causes of unfair comparison (missing intervals)."
    assert ledger.footnotes() == ("Not fair: missing intervals (one seed, so no interval: all methods).",)
    uneven = check_fairness("study", {**runs, "margin": runs_of("margin", seeds=(0, 1, 2))}, [data])
    assert uneven["intervals"].finding == "seeds are 0, 1 for contrastive, arcface; 0, 1, 2 for margin"


def test_what_is_declared_may_differ_and_is_said(runs, data):
    changed = {**runs, "margin": runs_of("margin", batch__classes=4, batch__samples=1, training__steps=40)}
    for varies in (["batch", "training.steps"], ["batch.classes", "batch.samples", "budget"]):
        ledger = check_fairness("study", changed, [data], varies=varies)
        ledger.raise_unfair()
        assert ledger.sentence.endswith("declared to vary: batch, training budget.")
        assert ledger.footnotes()[0] == (
            "Declared to vary: batch (batch.classes is 2 for contrastive, arcface; 4 for margin; "
            "batch.samples is 2 for contrastive, arcface; 1 for margin)."
        )
    assert "batch.samples is 2" in refusal(changed, [data], varies=["batch.classes", "budget"])
    assert ledger.notes == ()


def test_a_declared_shape_of_another_size_is_noted(runs, data):
    changed = {**runs, "margin": runs_of("margin", batch__classes=4, batch__samples=4)}
    (note,) = check_fairness("study", changed, [data], varies=["batch"]).notes
    assert "images per step are 4 for contrastive, arcface; 16 for margin" in note


def test_waived_faults_are_printed(runs, data):
    changed = {**runs, "margin": runs_of("margin", model__dim=8)}
    ledger = check_fairness("study", changed, [data], waivers={"dimension": "as published", "budget": "no reason"})
    ledger.raise_unfair()
    assert ledger.sentence == (
        "Fair but for what is waived (embedding dimension): no other cause of unfair comparison was found."
    )
    assert ledger.footnotes() == (
        "Waived: embedding dimension (model.dim is 4 for untrained, contrastive, arcface; 8 for margin): as published.",
    )
    assert ledger.notes == ("The waiver of budget is not needed; leave it out.",)


def test_misspelt_and_empty_waivers_are_errors(runs, data):
    with pytest.raises(EquimetricError, match="unknown factor in \\[waivers\\] 'dimensions'; did you mean 'dimension'"):
        check_fairness("study", runs, [data], waivers={"dimensions": "x"})
    with pytest.raises(EquimetricError, match="the waiver of 'dimension' has no reason"):
        check_fairness("study", runs, [data], waivers={"dimension": " "})
    with pytest.raises(EquimetricError, match=r"unknown name in varies 'modle\.dim'"):
        check_fairness("study", runs, [data], varies=["modle.dim"])


def test_several_faults_are_one_error(runs, data):
    changed = {**runs, "margin": runs_of("margin", model__dim=8, training__steps=40)}
    message = refusal(changed, [data])
    assert message.index("embedding dimension (") < message.index("; training budget (")
    assert '[waivers] dimension = "reason", budget = "reason"' in message
    assert "\n" not in message


def test_folds_of_a_row_must_be_those_of_the_others(runs):
    def folded(method, folds):
        return [run for fold in folds for run in runs_of(method, data__fold=fold)]

    rows = {**runs, "contrastive": folded("contrastive", range(4)), "margin": folded("margin", (3, 2, 1, 0))}
    rows["arcface"] = folded("arcface", range(3))
    (entry,) = (entry for entry in check_conditions(rows) if entry.status == "differs")
    assert entry.finding == "data.fold is 0, 1, 2, 3 for contrastive, margin; 0, 1, 2 for arcface"


def test_few_metrics_are_noted(data):
    only = {"metrics": ["recall@1", "nmi"], "selected_by": "recall@1"}
    plain = {name: runs_of(name, evaluation=only) for name in ("contrastive", "margin")}
    (note,) = check_fairness("study", plain, [data]).notes
    assert note.startswith("No R-Precision or MAP@R is reported")


def test_every_condition_belongs_to_a_factor():
    for key, _ in flatten(Conditions().model_dump(exclude=IRRELEVANT_KEYS)):
        assert find_factor(key).name in FACTORS
    assert find_factor("data.options.root").name == "data"
    assert find_factor("optimizer.groups.adversary.lr").name == "optimizer"
    assert set(METHOD_KEYS) == {"method", "options", "learner", "optimizer.objective_lr"}


def test_it_is_stored_with_a_checksum(runs, data, tmp_path):
    changed = {**runs, "margin": runs_of("margin", model__dim=8)}
    ledger = check_fairness("study", changed, [data], varies=["batch"], waivers={"dimension": "“as published”"})
    assert Ledger.load(tmp_path) is None
    file = ledger.save(tmp_path)
    assert Ledger.load(tmp_path) == ledger
    file.write_text(file.read_text().replace("as published", "as it was"))
    with pytest.raises(DamagedFileError, match="its checksum does not match"):
        Ledger.load(tmp_path)
