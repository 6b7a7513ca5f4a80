"""Every learner trains the backbones of the papers, not only the small network."""

from importlib.util import find_spec

import pytest
import torch
from making import IMAGES, make

from equimetric.learners import LEARNERS, Batch

TRAINED = [name for name in LEARNERS if LEARNERS[name].trains and LEARNERS[name].__module__.startswith("equimetric.")]


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["bn_inception", "timm:resnet18"])
@pytest.mark.parametrize("name", TRAINED)
def test_gradients_reach_the_first_layer_of_a_published_backbone(name, backbone):
    if backbone.startswith("timm:") and find_spec("timm") is None:
        pytest.skip("timm is not installed")
    learner = (
        make(name, IMAGES.model_copy(update={"channels": 3}), model={"backbone": backbone, "frozen_batch_norm": False})
        .float()
        .train()
    )
    images = torch.rand(12, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    views = tuple(images.flip(3) for _ in range(1, learner.views))
    batch = Batch(images, torch.arange(12) % 3, torch.arange(12), views=views, task=learner.tasks()[0].name)
    sum(learner.losses(learner.outputs(batch), batch).values()).backward()
    first = next(iter(learner.parameter_groups()["trunk"]))
    assert first.grad is not None
    assert first.grad.abs().max() > 0
    with torch.no_grad():
        assert learner.eval().embed(images).shape == (12, 8)
