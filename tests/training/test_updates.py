"""Updates in fewer calls are those of torch, bit for bit."""

import pytest
import torch
from torch.optim import SGD, Adam, AdamW, RMSprop

from equimetric.training.optimizers import Optimizers
from equimetric.training.updates import RULES, apply_updates

RECIPES = {
    "adamw": lambda groups: AdamW(groups, lr=1e-2, weight_decay=0.1),
    "adamw without decay": lambda groups: AdamW(groups, lr=1e-2, weight_decay=0),
    "adam": lambda groups: Adam(groups, lr=1e-2, weight_decay=0.1, eps=1e-3),
    "rmsprop": lambda groups: RMSprop(groups, lr=1e-2, momentum=0.9, weight_decay=0.01),
    "rmsprop without momentum": lambda groups: RMSprop(groups, lr=1e-2, momentum=0.0),
    "sgd": lambda groups: SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01),
    "plain sgd": lambda groups: SGD(groups, lr=0.1),
}


def make(recipe, dtype):
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in ((33, 17), (17,))]
    return parameters, RECIPES[recipe]([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.05}])


def set_gradients(parameters, step):
    """The second parameter is frozen at first, the first one has no part in step 5."""
    generator = torch.Generator().manual_seed(step)
    for number, parameter in enumerate(parameters):
        gradient = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
        parameter.grad = None if (number, step) in {(1, 0), (1, 1), (0, 5)} else gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("recipe", RECIPES)
def test_updates_equal_those_of_torch(recipe, dtype):
    (plain, torch_optimizer), (lean, optimizer) = make(recipe, dtype), make(recipe, dtype)
    for step in range(8):
        for parameters in (plain, lean):
            set_gradients(parameters, step)
        for one in (torch_optimizer, optimizer):
            one.param_groups[0]["lr"] = 1e-2 / (1 + step)
        torch_optimizer.step()
        apply_updates(optimizer)
        assert all(torch.equal(one, other) for one, other in zip(plain, lean, strict=True)), step
    expected, found = torch_optimizer.state_dict()["state"], optimizer.state_dict()["state"]
    assert expected.keys() == found.keys()
    for place, values in expected.items():
        assert values.keys() == found[place].keys()
        assert all(torch.equal(values[name], found[place][name]) for name in values if values[name] is not None)


def test_torch_makes_the_state_and_takes_no_step_after_that(monkeypatch):
    parameters, optimizer = make("adamw", torch.float32)
    steps = []
    monkeypatch.setattr(optimizer, "step", lambda: steps.append(AdamW.step(optimizer)))
    for step in range(6):
        set_gradients(parameters, step)
        Optimizers(optimizer).step()
    # At first there is no state, and in step 2 the second parameter has its first gradient.
    assert len(steps) == 2


def test_every_rule_of_the_configuration_has_a_lean_update():
    from equimetric.training.optimizers import OPTIMIZERS

    assert set(OPTIMIZERS.values()) == set(RULES)


def test_an_optimiser_of_another_kind_is_left_to_torch():
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adagrad([parameter], lr=0.5)
    for _ in range(2):
        parameter.grad = torch.ones(3)
        apply_updates(optimizer)
    assert (parameter < 0.2).all()
