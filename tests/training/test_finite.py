"""A gradient or a weight that is not finite stops the run, and no checkpoint holds one."""

import json
import math

import pytest
import torch
from torch import nn

from equimetric.configuration import load_config
from equimetric.errors import EquimetricError
from equimetric.learners import SingleObjectiveLearner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.model import load_weights
from equimetric.training import train
from equimetric.training.finite import gradient_norms, require_finite_weights
from equimetric.training.meter import MAX_UNREAD_LOSSES, LossMeter
from equimetric.training.optimizers import Optimizers

CONFIG = {
    "method": "arcface",
    "data": {"name": "digits"},
    "model": {"dim": 8},
    "batch": {"classes": 2, "samples": 4},
    "training": {"steps": 6, "validate_every": 2, "log_every": 3, "checkpoint_seconds": 0},
}


def root_of_nothing(values):
    """0, with a gradient that is NaN."""
    return (values - values.detach()).sum().abs().sqrt()


def spoil_gradients(monkeypatch, pick, first_batch):
    """From a batch on, add a term of value 0 whose gradient is NaN."""
    losses = SingleObjectiveLearner.losses

    def spoiled(learner, outputs, batch):
        terms = losses(learner, outputs, batch)
        if batch.number >= first_batch:
            terms["nothing"] = root_of_nothing(pick(learner, outputs))
        return terms

    monkeypatch.setattr(SingleObjectiveLearner, "losses", spoiled)


@pytest.mark.parametrize(
    ("group", "pick"),
    [
        ("trunk", lambda learner, outputs: outputs["embedding"]),
        ("objective", lambda learner, outputs: next(learner.objective.parameters())),
    ],
)
def test_a_gradient_that_is_not_finite_stops_the_run_with_its_step_and_group(tmp_path, monkeypatch, group, pick):
    train(CONFIG, folder=tmp_path / "undisturbed")
    with monkeypatch.context() as patch:
        spoil_gradients(patch, pick, first_batch=3)
        message = (
            f"the loss of 'arcface' is finite, but the gradient of its parameter group '{group}' became nan at step 4"
        )
        with pytest.raises(EquimetricError, match=message):
            train(CONFIG, folder=tmp_path / "run")
    (checkpoint,) = (tmp_path / "run").glob("checkpoint-*.safetensors")
    assert all(tensor.isfinite().all() for tensor in load_weights(checkpoint).values())
    train(CONFIG, folder=tmp_path / "run")
    one, other = (load_weights(tmp_path / name / "model.safetensors") for name in ("run", "undisturbed"))
    assert all(torch.equal(one[name], other[name]) for name in one | other)


def test_no_checkpoint_holds_a_weight_that_is_not_finite(tmp_path, monkeypatch):
    def break_head(learner, step):
        if step == 3:
            with torch.no_grad():
                learner.network.head.weight[0, 1] = math.inf

    monkeypatch.setattr(SingleObjectiveLearner, "after_step", break_head)
    with pytest.raises(
        EquimetricError, match=r"the parameter 'network.head.weight' became inf at step 4, .* lower opt"
    ):
        train(CONFIG, folder=tmp_path)
    (checkpoint,) = tmp_path.glob("checkpoint-*.safetensors")
    assert checkpoint.name == "checkpoint-00000002.safetensors"
    assert all(tensor.isfinite().all() for tensor in load_weights(checkpoint).values())


def test_initial_weights_are_checked_too_and_large_ones_are_finite():
    layer = nn.Linear(3, 2)
    nn.init.constant_(layer.weight, 3e38)
    require_finite_weights(layer, 7)
    nn.init.constant_(layer.bias, math.nan)
    with pytest.raises(EquimetricError, match=r"'bias' holds nan before the first step; check .* model\.pretrained"):
        require_finite_weights(layer, 0)
    require_finite_weights(nn.Identity(), 0)


def test_gradient_norms_are_those_of_groups_with_gradients():
    frozen, first, second = (nn.Parameter(torch.ones(2)) for _ in range(3))
    first.grad, second.grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, -4.0])
    groups = [{"group": "trunk", "params": [frozen]}, {"group": "head", "params": [first, second]}]
    optimizer = Optimizers(torch.optim.SGD(groups, lr=1.0))
    norms = gradient_norms(optimizer)
    assert {name: torch.stack(group).tolist() for name, group in norms.items()} == {"head": [3.0, 4.0]}
    second.grad[0] = -math.inf
    assert [norm.isfinite().item() for norm in gradient_norms(optimizer)["head"]] == [True, False]


def test_values_that_are_read_late_name_the_first_step():
    """On a GPU several steps are read at once."""
    meter = LossMeter(load_config(CONFIG, RunConfig))
    fine, wrong = torch.tensor(1.0), torch.tensor(math.nan)
    for step, (loss, gradient) in enumerate([(fine, fine), (fine, wrong), (wrong, wrong)]):
        meter.add({"loss": loss, "arcface": loss}, step)
        meter.add_gradients({"trunk": [fine], "head": [fine, gradient]}, step)
    with pytest.raises(EquimetricError, match="gradient of its parameter group 'head' became nan at step 2;"):
        meter.read()


def test_a_loss_that_is_not_finite_is_named_before_its_gradient():
    meter = LossMeter(load_config(CONFIG, RunConfig))
    meter.add({"loss": torch.tensor(math.inf), "arcface": torch.tensor(math.inf)}, 0)
    with pytest.raises(EquimetricError, match="the term 'arcface' of 'arcface' became inf at step 1;"):
        meter.add_gradients({"head": [torch.tensor(math.nan)]}, 0)


def spoil_loss(monkeypatch, first_batch, more=lambda step: None):
    """From a batch on the loss is NaN."""
    losses = SingleObjectiveLearner.losses

    def spoiled(learner, outputs, batch):
        more(batch.number)
        terms = losses(learner, outputs, batch)
        return {name: value * math.nan if batch.number >= first_batch else value for name, value in terms.items()}

    monkeypatch.setattr(SingleObjectiveLearner, "losses", spoiled)


@pytest.mark.parametrize(("log_every", "last"), [(1, 4), (3, 6), (1000, 10)])
def test_values_are_read_before_the_next_line_of_the_log_or_validation(tmp_path, monkeypatch, log_every, last):
    """The error names the step at which the value appeared, and what was logged and validated is of steps before it."""
    steps = []
    spoil_loss(monkeypatch, first_batch=3)
    training = {"steps": 40, "validate_every": 10, "log_every": log_every, "checkpoint_seconds": 0}
    with pytest.raises(EquimetricError, match="the term 'arcface' of 'arcface' became nan at step 4;"):
        train({**CONFIG, "training": training}, folder=tmp_path, progress=lambda step, _: steps.append(step))
    assert len(steps) == last - 1
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert all(line["step"] < 4 for line in lines)
    assert json.loads((tmp_path / "checkpoint.json").read_text())["step"] == 0


def test_no_more_than_some_values_are_left_unread(tmp_path, monkeypatch):
    steps = []
    spoil_loss(monkeypatch, first_batch=3)
    training = {"steps": 1000, "validate_every": 1000, "log_every": 1000}
    with pytest.raises(EquimetricError, match="became nan at step 4;"):
        train({**CONFIG, "training": training}, folder=tmp_path, progress=lambda step, _: steps.append(step))
    assert len(steps) == MAX_UNREAD_LOSSES, "one that was read at once, then as many as may be unread"


def test_an_error_after_a_value_that_was_not_finite_names_the_value(tmp_path, monkeypatch):
    def fail(number):
        if number == 5:
            raise RuntimeError("probabilities must be finite")

    config = {**CONFIG, "training": {"steps": 40, "validate_every": 40, "log_every": 40}}
    with monkeypatch.context() as patch:
        spoil_loss(patch, first_batch=3, more=fail)
        with pytest.raises(EquimetricError, match="became nan at step 4;"):
            train(config, folder=tmp_path / "run")
    spoil_loss(monkeypatch, first_batch=99, more=fail)
    with pytest.raises(RuntimeError, match="probabilities must be finite"):
        train(config, folder=tmp_path / "other")
