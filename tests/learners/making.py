"""Learners and batches of a few small images."""

import torch
from small_learners import SMALL, merge

from equimetric.configuration import load_config
from equimetric.learners import Batch
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.members import measure_cost
from equimetric.runs.result import DataShape

IMAGES = DataShape(channels=1, vectors=False, classes=3, images=24)
VECTORS = DataShape(channels=6, vectors=True, classes=3, images=24)


def make(name, shape=IMAGES, **tables):
    """A learner in double precision, from its small configuration and further tables."""
    base = {"method": "contrastive", "data": {"name": "digits"}, "model": {"dim": 8}, "learner": {"name": name}}
    config = merge(merge(base, SMALL.get(name, {})), tables)
    return build_learner(load_config(config, RunConfig), shape).double()


def make_batch(shape=IMAGES):
    """24 random images or vectors of three classes."""
    size = (shape.channels,) if shape.vectors else (shape.channels, 8, 8)
    images = torch.rand(24, *size, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return Batch(images, torch.arange(24) % 3, torch.arange(24))


def require_training_only(learner, batch):
    """Check that other values of what only training needs leave the embeddings alone; gives the cost."""
    learner.eval()
    with torch.no_grad():
        before = learner.embed(batch.images)
        for module in learner.training_only():
            for parameter in module.parameters():
                parameter.add_(1.0)
        torch.testing.assert_close(learner.embed(batch.images), before, rtol=0, atol=0)
    return measure_cost(learner, before.shape[1])
