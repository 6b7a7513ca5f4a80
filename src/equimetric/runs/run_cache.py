"""Parts that the runs of one process share, made once: data, frozen backbones, their features.

A worker that trains thousands of heads on the same features reads the data, builds and hashes the backbone and checks
the feature file once. Everything is keyed by the configuration and file contents that determine it, and only the most
recently used entries are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import Tensor

from equimetric.backbones import Backbone, find_weight_file
from equimetric.data import Dataset, ImageFiles, Images
from equimetric.data.registry import path_options
from equimetric.file_hashes import hash_file, read_stamp
from equimetric.processes import SINGLE, Processes, choose_device
from equimetric.runs.configuration import DataConfig, RunConfig
from equimetric.runs.data import RunData, load_data_set, load_run_data
from equimetric.runs.features import cached_features
from equimetric.runs.folder import WrittenFile

__all__ = ["LRUCache", "RunCache"]

Value = TypeVar("Value")

MAX_CACHE_BYTES = 2**30
"""Bytes of images or features that the data of several folds may take in total."""


class LRUCache(Generic[Value]):
    """Values by key; the least recently used is dropped beyond `max_items` values or `max_bytes` bytes."""

    def __init__(
        self, max_items: int, size_of: Callable[[Value], int] = lambda _: 0, max_bytes: int = MAX_CACHE_BYTES
    ) -> None:
        self.max_items = max_items
        self.size_of = size_of
        self.max_bytes = max_bytes
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made where it is missing."""
        value = self._values[key] if key in self._values else make()
        self.put(key, value)
        return value

    def put(self, key: Hashable, value: Value) -> None:
        """Keep a value as the most recently used one."""
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > 1 and (len(self._values) > self.max_items or self._weight() > self.max_bytes):
            self._values.popitem(last=False)

    def find(self, key: Hashable) -> Value | None:
        """The value of a key; None where it is missing."""
        return self._values.get(key)

    def holds(self, value: Value) -> bool:
        """Whether this object is cached."""
        return any(cached is value for cached in self._values.values())

    def drop(self, key: Hashable) -> None:
        """Forget a value."""
        self._values.pop(key, None)

    def _weight(self) -> int:
        return sum(map(self.size_of, self._values.values()))


class RunCache:
    """Data, frozen backbones and features that the runs of one process share, and checks that passed.

    Runs read these and change none of them. A run on its own has a new cache.
    """

    def __init__(self) -> None:
        self._data_sets: LRUCache[Dataset] = LRUCache(2, lambda data_set: count_bytes(data_set.images))
        self._data: LRUCache[RunData] = LRUCache(8, lambda data: count_bytes(data.dataset.images))
        self._backbones: LRUCache[Backbone] = LRUCache(2)
        self._generator_states: LRUCache[Tensor] = LRUCache(256)
        self._features: LRUCache[Tensor] = LRUCache(2, count_bytes)
        self._feature_data: LRUCache[RunData] = LRUCache(8, lambda data: count_bytes(data.dataset.images))
        self._checked: LRUCache[None] = LRUCache(64)
        self.frozen_files: LRUCache[WrittenFile] = LRUCache(2)

    def data(self, config: RunConfig, *, test: bool = True) -> RunData:
        """The data of a configuration, with or without its test rows; the folds of a data set share its images.

        A list or a file of arrays that has changed is read again, and so are changed images in files, unless the run
        trains on features of them.
        """
        source = source_cache_key(config.data)
        cached = self._data_sets.find(source)
        if cached is not None and not config.model.frozen and not is_unchanged(cached.images):
            self._data_sets.drop(source)
        data_set = self._data_sets.get(source, lambda: load_data_set(config.data))
        list_stamp = config.data.split and read_stamp(Path(config.data.split.file).expanduser())
        key = (data_set, config.data.model_dump_json(), list_stamp, config.refit and config.refit.added_parts, test)

        def load() -> RunData:
            data = load_run_data(config.data, config.refit, model=config.model, dataset=data_set)
            return data if test else replace(data, split=data.split.without_test())

        return self._data.get(key, load)

    def backbone(self, config: RunConfig, build: Callable[[], Backbone], *details: int) -> Backbone:
        """The frozen backbone that `build` makes, keyed by the configuration and further `details`.

        Torch's generator is seeded, and left as after building, so that a head draws the same weights.
        """
        seed = torch.initial_seed()
        key = (backbone_cache_key(config, seed), *details)
        cached = self._backbones.find(key)
        if cached is not None:
            state = self._generator_states.get((key, seed), lambda: state_after(build))
            torch.set_rng_state(state)
            return cached
        built = build()
        self._backbones.put(key, built)
        self._generator_states.put((key, seed), torch.get_rng_state())
        return built

    def with_features(self, data: RunData, backbone: Backbone, processes: Processes = SINGLE) -> RunData:
        """The data with the features of a frozen backbone in place of images, computed once."""
        if not self.holds(backbone):
            return data.with_features(cached_features(backbone, data.eval_data, processes))

        def compute() -> RunData:
            key = (backbone, data.eval_data.fingerprint)
            return data.with_features(
                self._features.get(key, lambda: cached_features(backbone, data.eval_data, processes))
            )

        return self._feature_data.get((backbone, data), compute)

    def find_features(self, data: RunData, backbone: Backbone | None) -> RunData | None:
        """The cached result of `with_features`; None where there is none."""
        return self._feature_data.find((backbone, data))

    def holds(self, backbone: Backbone) -> bool:
        """Whether a backbone is shared by several runs."""
        return self._backbones.holds(backbone)

    def check_once(self, key: Hashable, check: Callable[[], None]) -> None:
        """Run `check` once per key; later calls with an equal key are skipped if it passed."""
        self._checked.get(key, check)


def source_cache_key(config: DataConfig) -> Hashable:
    """Key of a data set, whatever its split: its options, and size and times of the files that they name."""
    paths = [config.options.get(option) for option in sorted(path_options(config.name))]
    stamps = tuple(read_stamp(Path(str(path)).expanduser()) for path in paths if path is not None)
    return (config.model_dump_json(include={"name", "options", "weights", "held_out"}), stamps)


def is_unchanged(images: Images) -> bool:
    """Whether images are as they were loaded: always in memory, while files may have changed."""
    return not isinstance(images, ImageFiles) or images.store.is_unchanged()


def backbone_cache_key(config: RunConfig, seed: int) -> Hashable:
    """Key of a frozen backbone: its configuration, and the content of its weights or the seed of random ones."""
    model, training = config.model, config.training
    file = find_weight_file(model.backbone, model.pretrained)
    weights = hash_file(file) if file is not None else model.pretrained or seed
    placement = (choose_device(training.device), training.precision, training.channels_last)
    return (model.backbone, weights, model.pooling, str(model.frozen_batch_norm), placement)


def state_after(build: Callable[[], Backbone]) -> Tensor:
    """The state of torch's generator after building a backbone."""
    build()
    return torch.get_rng_state()


def count_bytes(images: Images) -> int:
    """Memory of images or features; none of those in files."""
    return images.nbytes if isinstance(images, Tensor) else 0
