"""Defaults by regime, for keys that the configuration leaves out.

A head on frozen features, a pretrained network and a network from scratch want different learning rates, budgets and
starts. They were chosen on validation classes of photographs, handwritten and typeset characters
(`benchmarks/choose_defaults.py`, `results/defaults`). On frozen features of photographs three times the learning rate
was best at the first validations and fell from there on; of characters it ended two to three points of MAP@R higher,
where both are ten above the features. Of fine-tuned networks a third gained half as much, and three times as much lost
Recall@1. From scratch, learned proxies of many classes gain most from a slow start of learning rates; three times the
learning rate gained a point or two for most methods and lost fourteen for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel

if TYPE_CHECKING:
    from equimetric.runs.configuration import Conditions
    from equimetric.runs.result import DataShape

__all__ = ["DEFAULTS", "MAX_DEFAULT_DIM", "STEPS", "Regime", "fill_defaults", "find_regime", "fit_to_data"]

AnyConditions = TypeVar("AnyConditions", bound="Conditions")

Regime: TypeAlias = Literal["frozen features", "fine-tuning", "from scratch"]

DEFAULTS: dict[Regime, dict[str, dict[str, Any]]] = {
    # The principal components keep what the features know; small steps add to it without forgetting it. On photographs
    # the best step comes early.
    "frozen features": {
        "model": {"head_init": "pca"},
        "optimizer": {"lr": 3e-4},
        "training": {"validate_every": 50},
    },
    "fine-tuning": {
        "model": {"head_init": "pca", "frozen_batch_norm": True},
        "optimizer": {"lr": 3e-4},
        "training": {"steps": 300, "validate_every": 50},
    },
    "from scratch": {"model": {"dim": 64}},
}
"""Keys that differ from the defaults of the tables themselves."""

MAX_DEFAULT_DIM: dict[Regime, int] = {"frozen features": 512, "fine-tuning": 256, "from scratch": 256}
"""Embedding dimension where none is given: 256 components start up to two points of Recall@1 below frozen features."""

MAX_DEFAULT_CLASSES = 32
"""Classes of a batch."""

STEPS, WARMUP_SHARE = 600, 6
"""Steps where none are given; from scratch, learning rates rise over a sixth of the steps."""


def find_regime(values: Mapping[str, Any]) -> Regime:
    """The regime of a configuration: a head on features, a pretrained network, or a network from scratch."""
    data, model = (to_values(values.get(table)) for table in ("data", "model"))
    if model.get("frozen") or data.get("name") in ("features", "pairs"):
        return "frozen features"
    return "fine-tuning" if model.get("pretrained") not in (None, "none") else "from scratch"


def fill_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the defaults of their regime for keys that are not given."""
    filled, regime = dict(values), find_regime(values)
    tables = DEFAULTS[regime]
    if regime == "from scratch":
        steps = to_values(values.get("training")).get("steps", STEPS)
        tables = {
            **tables,
            "optimizer": {"warmup_steps": max(0, steps // WARMUP_SHARE) if isinstance(steps, int) else 0},
        }
    for table, defaults in tables.items():
        explicit = values.get(table)
        # A value that is no table is left to the schema, which raises an error.
        if explicit is None or isinstance(explicit, (Mapping, BaseModel)):
            filled[table] = {**defaults, **to_values(explicit)}
    return filled


def to_values(table: object) -> Mapping[str, Any]:
    """The explicit keys of a table of a configuration."""
    if isinstance(table, BaseModel):
        return table.model_dump(exclude_unset=True)
    return table if isinstance(table, Mapping) else {}


def fit_to_data(config: AnyConditions, shape: DataShape) -> AnyConditions:
    """The configuration with defaults that depend on the data: the embedding dimension and the classes of a batch.

    There are at most min(D, N − 1) principal components of N training images with D features.
    """
    changes: dict[str, BaseModel] = {}
    if config.model.dim is None:
        max_dim = MAX_DEFAULT_DIM[find_regime({"data": config.data, "model": config.model})]
        features = min(shape.modalities.values(), default=shape.channels) if shape.vectors else max_dim
        dim = max(1, min(max_dim, features, shape.images - 1))
        changes["model"] = config.model.model_copy(update={"dim": dim})
    if config.batch.classes is None:
        classes = max(1, min(MAX_DEFAULT_CLASSES, shape.classes))
        changes["batch"] = config.batch.model_copy(update={"classes": classes})
    return config.model_copy(update=changes) if changes else config
