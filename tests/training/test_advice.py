"""A run that is best at its start says so, with what its curves point to."""

import math

import pytest

from equimetric.configuration import load_config
from equimetric.runs.configuration import RunConfig
from equimetric.runs.model import load_run
from equimetric.training import train
from equimetric.training.advice import explain_no_gain

TINY = {
    "method": "contrastive",
    "data": {"name": "digits"},
    "model": {"dim": 8},
    "batch": {"classes": 3, "samples": 4},
    "training": {"steps": 12, "validate_every": 4, "log_every": 2},
}


def explain(values, losses, **tables):
    log = [{"kind": "train", "step": 100 * number + 100, "loss": loss} for number, loss in enumerate(losses)]
    log += [{"kind": "validation", "step": 100 * number, "map@r": value} for number, value in enumerate(values)]
    return explain_no_gain(load_config(tables, RunConfig), log)


@pytest.mark.parametrize(
    ("values", "losses", "expected"),
    [
        ((0.5, 0.4, 0.3), (1.0, 0.5), ("fell from the first one on", "too high a rate; try optimizer.lr = 0.0003")),
        ((0.5, 0.4, 0.3), (1.0, 1.4), ("loss did not fall", "from 1 to 1.4", "try optimizer.lr = 0.0003 (now 0.003)")),
        ((0.5, 0.4, 0.3), (1.0, 0.995), ("loss did not fall", "optimizer.warmup_steps", "batch of more classes")),
        (
            (0.5, 0.499, 0.498),
            (1.0, 0.99),
            ("hardly moved", "too low a rate or too few steps", "optimizer.lr = 0.03 (now"),
        ),
        ((0.5, 0.499, 0.498), (1.0, 0.5), ("hardly moved", "training.steps = 2400 (now 600)")),
        ((0.5, 0.3, 0.45), (1.0, 0.5), ("was rising at the end", "try training.steps = 2400")),
        ((0.5, 0.3), (1.0,), ("fell from the first one on",)),
    ],
)
def test_the_words_follow_the_curves(values, losses, expected):
    text = explain(values, losses)
    best = max(values[1:])
    assert f"was 0.5000 at the start and at most {best:.4f} afterwards (step {100 * values.index(best)})" in text
    for part in expected:
        assert part in text


def test_a_loss_of_zero_is_no_question_of_the_rate():
    alone = explain((0.5, 0.5), (0.0, 0.0), batch={"samples": 1})
    assert "nothing was learned; batches have one image of each class" in alone
    assert "set batch.samples to 2 or more" in alone
    apart = explain((0.5, 0.4), (0.0, 0.0))
    assert "set a larger margin" in apart
    assert "optimizer" not in alone + apart


def test_the_rate_that_is_named_is_the_one_in_use():
    text = explain((0.5, 0.4), (1.0, 2.0), model={"frozen": True}, optimizer={"head_lr": 0.1})
    assert "optimizer.head_lr = 0.01 (now 0.1)" in text


def test_batch_statistics_of_pretrained_weights_are_named():
    free = {"pretrained": "weights.pth", "frozen_batch_norm": False}
    assert "model.frozen_batch_norm = true" in explain((0.5, 0.4), (1.0, 0.5), model=free)
    frozen = {"pretrained": "weights.pth", "frozen_batch_norm": True}
    assert "frozen_batch_norm" not in explain((0.5, 0.4), (1.0, 0.5), model=frozen)


def test_validation_that_is_not_finite():
    assert "was not finite" in explain((math.nan, math.nan), (1.0, 0.5))
    assert "was not finite" in explain((0.5, math.nan), (1.0, 0.5))


@pytest.mark.parametrize(("values", "notes"), [((0.5, 0.4, 0.3, 0.2), 1), ((0.5, 0.4, 0.6, 0.2), 0)])
def test_the_result_of_a_run_that_is_best_at_its_start_says_so(values, notes, tmp_path, monkeypatch, script_validation):
    script_validation(monkeypatch, values)
    trained = train(TINY, folder=tmp_path)
    assert len(trained.result.notes) == notes
    if notes:
        assert trained.best_step == 0
        assert trained.result.notes[0].startswith("Training did not help: map@r on the validation classes was 0.5000")
        assert trained.result.notes == load_run(tmp_path).result.notes


@pytest.mark.parametrize(
    ("values", "best", "expected"),
    [
        (
            (0.3, 0.5, 0.4, 0.2),
            4,
            "The first validation, after 4 steps, was the best: a better one may lie before it. ",
        ),
        ((0.3, 0.3, 0.4, 0.5), 12, "The last validation, after 12 steps, was the best: more steps may be better. "),
    ],
)
def test_the_best_validation_is_the_first_or_the_last(values, best, expected, tmp_path, monkeypatch, script_validation):
    script_validation(monkeypatch, values)
    trained = train(TINY, folder=tmp_path)
    (note,) = trained.result.notes
    assert trained.best_step == best
    assert note.startswith(expected)
    if best == 4:
        assert note.endswith("Try training.validate_every = 1 (now 4), or optimizer.lr = 0.001 (now 0.003).")
    else:
        assert note.endswith("Try training.steps = 24 (now 12).")


def test_of_two_validations_one_is_the_first_and_the_other_the_last(tmp_path, monkeypatch, script_validation):
    script_validation(monkeypatch, (0.3, 0.4, 0.5))
    assert train({**TINY, "training": {"steps": 8, "validate_every": 4}}, folder=tmp_path).result.notes == ()


def test_baselines_take_no_step_and_have_no_note(tmp_path):
    baseline = {**TINY, "method": "untrained", "learner": {"name": "untrained"}}
    assert train(baseline, folder=tmp_path / "baseline").result.notes == ()
