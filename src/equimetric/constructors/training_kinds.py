"""Constructors of the parts of training: batches, learners, backbones, heads, data sets."""

from __future__ import annotations

from typing import Any

from torch import nn

from equimetric.backbones import BACKBONES, HEADS, Backbone, build_backbone, build_head
from equimetric.batches import BATCHES
from equimetric.constructors.kind import Kind, Signature, documentation, options_of, required_first, typed_parameters
from equimetric.data import DATASETS, Dataset, load_dataset
from equimetric.errors import EquimetricError, did_you_mean
from equimetric.learners import LEARNERS
from equimetric.option_values import check_options

__all__ = ["BACKBONE_FUNCTIONS", "BATCH_FUNCTIONS", "DATASET_FUNCTIONS", "HEAD_FUNCTIONS", "LEARNER_FUNCTIONS"]


def build_learner_table(name: str, **options: Any) -> dict[str, Any]:
    """The value of `learner` in a configuration: a run builds the learner, from its network and objective."""
    build = LEARNERS.find(name).build
    valid_options = [parameter.name for parameter in options_of(build)]
    for option in options:
        if option not in valid_options:
            raise EquimetricError(f"learner {name!r} has no option {option!r}; {did_you_mean(option, valid_options)}")
    return {"name": name, "options": check_options(f"learner {name!r}", build, options)}


BATCH_FUNCTIONS = Kind(
    "batches",
    lambda: BATCHES,
    lambda name: [Signature(tuple(typed_parameters(BATCHES[name])), BATCHES[name])],
    lambda name, *arguments, **options: BATCHES[name](*arguments, **options),
    lambda name: documentation(BATCHES[name]),
    room="equimetric.batches",
    known_as=lambda: BATCHES.known_as,
)
LEARNER_FUNCTIONS = Kind(
    "learners",
    lambda: LEARNERS,
    lambda name: [Signature(tuple(required_first(options_of(LEARNERS[name].build))), dict[str, Any])],
    build_learner_table,
    lambda name: documentation(LEARNERS[name]),
    room="equimetric.learners",
)
BACKBONE_FUNCTIONS = Kind(
    "backbones",
    lambda: BACKBONES,
    lambda _: [Signature(tuple(options_of(build_backbone)), Backbone)],
    build_backbone,
    lambda name: BACKBONES[name].summary + ".",
    room="equimetric.backbones",
)
HEAD_FUNCTIONS = Kind(
    "heads",
    lambda: HEADS,
    lambda name: [Signature(tuple(typed_parameters(HEADS[name])), nn.Module)],
    lambda name, features, dim, dropout=0.0: build_head(name, features, dim, dropout),
    lambda name: documentation(HEADS[name]),
)
DATASET_FUNCTIONS = Kind(
    "datasets",
    lambda: DATASETS,
    lambda name: [Signature(tuple(required_first(typed_parameters(DATASETS[name]))), Dataset)],
    load_dataset,
    lambda name: documentation(DATASETS[name]),
)
