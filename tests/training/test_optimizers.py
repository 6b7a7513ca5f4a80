"""Parameter groups, schedules, clipping, and their configuration."""

import pytest
import torch

from equimetric.backbones import EmbeddingNetwork
from equimetric.configuration import load_config
from equimetric.errors import EquimetricError
from equimetric.learners import SingleObjectiveLearner
from equimetric.objectives import compose
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import OptimizerConfig, RunConfig
from equimetric.runs.result import DataShape
from equimetric.training.optimizers import (
    Optimizers,
    build_optimizer,
    clip_gradients,
    learning_rate_factor,
    set_learning_rates,
)


def arcface(**optimizer):
    config = load_config({"method": "arcface", "model": {"dim": 8}, "optimizer": optimizer}, RunConfig)
    learner = build_learner(config, DataShape(channels=1, vectors=False, classes=5, images=10))
    return learner, build_optimizer(learner, config.optimizer)


def names_of(optimizer):
    return [type(one).__name__.lower() for one in optimizer.optimizers]


def identities(parameters):
    return [id(parameter) for parameter in parameters]


def test_trunk_head_and_objective_have_rates_and_weight_decays_of_their_own():
    learner, optimizer = arcface(
        lr=1e-3, head_lr=1e-2, head_weight_decay=0.5, objective_lr=1.0, objective_weight_decay=0.25
    )
    trunk, head, objective = optimizer.param_groups
    assert identities(trunk["params"]) == identities(learner.network.backbone.parameters())
    assert identities(head["params"]) == identities(learner.network.head.parameters())
    assert identities(objective["params"]) == identities(learner.objective.parameters())
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-2, 1.0]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [1e-4, 0.5, 0.25]
    set_learning_rates(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [5e-4, 5e-3, 0.5]


def test_the_head_is_like_the_trunk_and_the_objective_without_weight_decay_unless_told():
    _, optimizer = arcface(lr=1e-3, weight_decay=0.1, objective_lr=0.2)
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-3, 0.2]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.1, 0.0]


def test_nothing_to_learn_is_a_message():
    network = EmbeddingNetwork(None, torch.nn.Identity())
    with pytest.raises(EquimetricError, match="there is nothing to train"):
        build_optimizer(SingleObjectiveLearner(network, compose("contrastive")), OptimizerConfig())


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("rmsprop", {}, {"momentum": 0.9, "eps": 1e-8}),
        ("rmsprop", {"momentum": 0.0, "eps": 1e-3}, {"momentum": 0.0, "eps": 1e-3}),
        ("sgd", {"momentum": 0.5}, {"momentum": 0.5}),
        ("adam", {"eps": 1e-2}, {"eps": 1e-2}),
        ("adamw", {}, {"eps": 1e-8}),
    ],
)
def test_momentum_and_eps_reach_the_update_rule(name, options, expected):
    _, optimizer = arcface(name=name, **options)
    assert names_of(optimizer) == [name]
    assert all(group[key] == value for group in optimizer.param_groups for key, value in expected.items())


def test_the_objective_may_have_an_update_rule_of_its_own():
    _, optimizer = arcface(
        name="adam", eps=1e-2, lr=1e-4, objective_name="sgd", objective_lr=0.1, objective_weight_decay=0.5
    )
    assert names_of(optimizer) == ["adam", "sgd"]
    trunk, head, objective = optimizer.param_groups
    assert trunk["eps"] == head["eps"] == 1e-2
    assert (objective["lr"], objective["weight_decay"], objective["momentum"]) == (0.1, 0.5, 0.9)
    set_learning_rates(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [5e-5, 5e-5, 0.05]


@pytest.mark.parametrize(
    ("options", "rules", "momenta"),
    [
        ({"objective_name": "rmsprop"}, ["rmsprop"], [0.8, 0.8]),
        ({"objective_momentum": 0.0}, ["rmsprop", "rmsprop"], [0.8, 0.0]),
        ({"objective_name": "sgd"}, ["rmsprop", "sgd"], [0.8, 0.9]),
        ({"objective_name": "sgd", "objective_momentum": 0.5}, ["rmsprop", "sgd"], [0.8, 0.5]),
    ],
)
def test_what_the_objective_does_not_say_is_the_networks_as_far_as_the_rule_is(options, rules, momenta):
    _, optimizer = arcface(name="rmsprop", momentum=0.8, **options)
    assert names_of(optimizer) == rules
    assert [optimizer.param_groups[place]["momentum"] for place in (0, -1)] == momenta


def test_two_rules_move_parameters_as_two_optimisers_would():
    learner, optimizer = arcface(name="sgd", momentum=0.0, lr=0.5, weight_decay=0.0, objective_name="adam")
    before = {name: parameter.detach().clone() for name, parameter in learner.named_parameters()}
    for parameter in learner.parameters():
        parameter.grad = torch.full_like(parameter, 2.0)
    optimizer.step()
    for name, parameter in learner.named_parameters():
        # Plain gradient descent moves by lr · g, Adam's first step by lr · sign g.
        expected = 3e-2 if name.startswith("objective.") else 1.0
        assert torch.allclose(before[name] - parameter, torch.tensor(expected), atol=1e-6)
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in learner.parameters())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"schedule": "constant"}, [1, 1, 1, 1, 1, 1]),
        ({"schedule": "linear"}, [1, 0.9, 0.8, 0.7, 0.6, 0.5]),
        ({"schedule": "cosine"}, [1, 0.9755, 0.9045, 0.7939, 0.6545, 0.5]),
        ({"schedule": "step", "milestones": [2, 4], "decay": 0.5}, [1, 1, 0.5, 0.5, 0.25, 0.25]),
        ({"schedule": "constant", "warmup_steps": 4}, [0.25, 0.5, 0.75, 1, 1, 1]),
        # After the warm-up the ramp runs from step 2 to step 10.
        ({"schedule": "linear", "warmup_steps": 2}, [0.5, 1, 1, 0.875, 0.75, 0.625]),
    ],
)
def test_schedules(options, expected):
    config = OptimizerConfig(**options)
    factors = [learning_rate_factor(config, step, 10) for step in range(6)]
    assert factors == pytest.approx(expected, abs=1e-4)


def test_a_plateau_lowers_rates_as_often_as_it_was_reached():
    config = OptimizerConfig(schedule="plateau", plateau_steps=5, decay=0.5)
    assert [learning_rate_factor(config, 7, 10, num_plateaus) for num_plateaus in range(3)] == [1, 0.5, 0.25]


def test_clipping_by_norm_and_by_value():
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = Optimizers(torch.optim.SGD([weight], lr=1.0))
    weight.grad = torch.tensor([3.0, -4.0])
    clip_gradients(optimizer, OptimizerConfig())
    assert weight.grad.tolist() == [3.0, -4.0]
    clip_gradients(optimizer, OptimizerConfig(clip_norm=1.0))
    assert weight.grad.tolist() == pytest.approx([0.6, -0.8], abs=1e-5)
    clip_gradients(optimizer, OptimizerConfig(clip_value=0.7))
    assert weight.grad.tolist() == pytest.approx([0.6, -0.7], abs=1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"optimizer": {"momentum": 0.9}}, "optimizer: 'adamw' has no momentum to set"),
        ({"optimizer": {"name": "sgd", "eps": 1e-8}}, "'sgd' has no eps"),
        ({"optimizer": {"objective_momentum": 0.9}}, "'adamw' has no momentum to set; leave objective_momentum out"),
        ({"optimizer": {"objective_name": "sgd", "objective_eps": 1e-8}}, "leave objective_eps out"),
        ({"optimizer": {"objective_name": "lion"}}, "optimizer.objective_name: input should be 'adamw', 'adam'"),
        ({"optimizer": {"schedule": "step"}}, "milestones and schedule = 'step' belong together"),
        ({"optimizer": {"milestones": [3]}}, "milestones and schedule = 'step' belong together"),
        ({"optimizer": {"schedule": "step", "milestones": [5, 3]}}, "milestones must be ascending"),
        ({"optimizer": {"schedule": "plateau"}}, "plateau_steps and schedule = 'plateau' belong together"),
        ({"optimizer": {"plateau_steps": 3}}, "plateau_steps and schedule = 'plateau' belong together"),
        ({"optimizer": {"clip_norm": 1.0, "clip_value": 1.0}}, "give clip_norm or clip_value, not both"),
        ({"optimizer": {"warmup_steps": 600}}, "^optimizer.warmup_steps = 600 leaves nothing of the 600"),
        ({"training": {"patience": 5}}, "patience = 5 would stop at the first validation"),
        ({"training": {"ema": 1.0}}, "training.ema: input should be less than 1"),
        ({"training": {"precision": "float16"}}, "input should be 'float32', 'bfloat16' or 'float64'"),
        ({"training": {"device": "tpu"}}, "input should be 'auto', 'cpu' or 'cuda'"),
        ({"batch": {"at_once": 0}}, "batch.at_once: input should be greater than or equal to 1"),
        ({"batch": {"per_step": 0}}, "batch.per_step: input should be greater than or equal to 1"),
        ({"model": {"frozen": True, "freeze": ["backbone"]}}, "model: frozen trains the head alone"),
        ({"model": {"frozen_batch_norm": "some"}}, "input should be 'statistics'"),
    ],
)
def test_nonsense_is_one_sentence(values, message):
    with pytest.raises(EquimetricError, match=message):
        load_config(values, RunConfig)
