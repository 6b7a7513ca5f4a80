"""Learners and batches of a few small images."""

from dataclasses import replace

import torch
from small_learners import SMALL, merge

from equimetric.configuration import load_config
from equimetric.learners import Batch
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.members import measure_cost
from equimetric.runs.result import DataShape

IMAGES = DataShape(channels=1, vectors=False, classes=3, images=24, attributes={"script": 3, "block": 3, "face": 1})
VECTORS = DataShape(channels=6, vectors=True, classes=3, images=24)


def configuration(name, **tables):
    """A short run on digits, from a learner's small configuration and further tables."""
    base = {
        "method": "contrastive",
        "learner": {"name": name},
        "data": {"name": "digits", "transform": "affine"},
        "model": {"dim": 8, "frozen_batch_norm": True},
        "batch": {"classes": 3, "samples": 4},
        "optimizer": {"name": "sgd", "lr": 0.01, "schedule": "constant"},
        "training": {
            "steps": 7,
            "validate_every": 3,
            "log_every": 1,
            "precision": "float64",
            "checkpoint_seconds": 0,
        },
    }
    return merge(merge(base, SMALL.get(name, {})), tables)


def make(name, shape=IMAGES, **tables):
    """A learner in double precision, from its small configuration and further tables."""
    return build_learner(load_config(configuration(name, **tables), RunConfig), shape).double()


def make_batch(shape=IMAGES):
    """24 random images or vectors of three classes."""
    size = (shape.channels,) if shape.vectors else (shape.channels, 8, 8)
    images = torch.rand(24, *size, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return Batch(images, torch.arange(24) % 3, torch.arange(24))


def batch_for(learner, task="main"):
    """24 random images for a task of a learner, with as many views as it asks for."""
    batch = make_batch()
    views = tuple(batch.images + 0.01 * number for number in range(1, learner.views))
    return replace(batch, views=views, task=task)


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
