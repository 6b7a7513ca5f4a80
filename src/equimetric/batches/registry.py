"""Batch samplers by name. Each registers itself by `@batches("name")` in its own file."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from equimetric.batches.base import Batches
from equimetric.errors import EquimetricError, did_you_mean
from equimetric.registry import Registry

__all__ = ["BATCHES", "batches", "build_batches"]

BATCHES: Registry[type[Batches]] = Registry("batch.kind", "equimetric.batches")
"""Name → sampler; `BATCHES[name].summary()` describes it in one line."""

batches = BATCHES.register


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
    """The sampler of this name for batches of `classes` × `samples` rows.

    What these rows are depends on the sampler: classes, clusters, pairs or triples with `samples` samples each;
    episodes share the classes, hierarchies cut them into neighbourhoods. An epoch has `batches` batches, except where
    the sampler itself determines the number.
    """
    sampler, options = BATCHES.find(kind), dict(options or {})
    parameters = inspect.signature(sampler).parameters
    valid = [name for name in parameters if name not in ("labels", "batches", "seed")]
    for option in options:
        if option not in valid:
            raise EquimetricError(f"batches of kind {kind!r} have no option {option!r}; {did_you_mean(option, valid)}")
    shape = sampler.shape_options(classes, samples, options)
    for option in options.keys() & shape.keys():
        if options[option] != shape[option]:
            raise EquimetricError(
                f"{option!r} follows from batch.classes and batch.samples and is {shape[option]}; change those instead"
            )
    epoch_size = {"batches": batches} if "batches" in parameters else {}
    return sampler(labels, seed=seed, **epoch_size, **{**options, **shape})
