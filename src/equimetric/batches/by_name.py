"""Batch samplers by name, as a configuration asks for them."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from equimetric.batches.base import Batches
from equimetric.batches.class_balanced import ClassBalancedBatches
from equimetric.batches.clusters import ClusterBatches
from equimetric.batches.episodes import EpisodeBatches
from equimetric.batches.exhaustive import ExhaustiveBatches
from equimetric.batches.hard_classes import HardClassBatches
from equimetric.batches.hierarchy import HierarchyBatches
from equimetric.batches.n_pairs import NPairBatches
from equimetric.batches.neighbour_classes import NeighbourClassBatches
from equimetric.batches.smart_mining import SmartMiningBatches
from equimetric.errors import EquimetricError, did_you_mean, unknown_name

__all__ = ["BATCHES", "build_batches"]

BATCHES: dict[str, type[Batches]] = {
    "class_balanced": ClassBalancedBatches,
    "exhaustive": ExhaustiveBatches,
    "n_pairs": NPairBatches,
    "episodes": EpisodeBatches,
    "hard_classes": HardClassBatches,
    "neighbour_classes": NeighbourClassBatches,
    "hierarchy": HierarchyBatches,
    "smart_mining": SmartMiningBatches,
    "clusters": ClusterBatches,
}
"""Name → sampler; `BATCHES[name].summary()` says in one line what it does."""


def build_batches(
    kind: str,
    labels: Tensor,
    *,
    classes: int,
    samples: int,
    batches: int,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Batches:
    """The sampler of this name for batches of `classes` × `samples` rows, whatever it makes of them.

    The rows are so many classes, clusters, pairs, or triples with so many samples each; episodes share the classes,
    hierarchies cut them into neighbourhoods. An epoch has `batches` batches, except where the sampler itself says how
    many.
    """
    if kind not in BATCHES:
        raise unknown_name("batch.kind", kind, BATCHES)
    sampler, options = BATCHES[kind], dict(options or {})
    parameters = inspect.signature(sampler).parameters
    own = [name for name in parameters if name not in ("labels", "batches", "seed")]
    for option in options:
        if option not in own:
            raise EquimetricError(f"batches of kind {kind!r} have no option {option!r}; {did_you_mean(option, own)}")
    shape = sampler.sized(classes, samples, options)
    for option in options.keys() & shape.keys():
        if options[option] != shape[option]:
            raise EquimetricError(
                f"{option!r} follows from batch.classes and batch.samples and is {shape[option]}; change those instead"
            )
    length = {"batches": batches} if "batches" in parameters else {}
    return sampler(labels, seed=seed, **length, **{**options, **shape})
