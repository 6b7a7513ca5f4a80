"""The conditions of a study's runs, compared key by key."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from equimetric.backbones import find_weight_file
from equimetric.data import take_images
from equimetric.errors import EquimetricError
from equimetric.file_hashes import hash_file
from equimetric.learners import LEARNERS
from equimetric.processes import choose_device
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import Conditions, ModelConfig, RunConfig
from equimetric.runs.data import RunData
from equimetric.runs.embedding import embed_images
from equimetric.runs.key import IRRELEVANT_KEYS
from equimetric.studies.ledger.factors import FACTORS, METHOD_KEYS, Factor, check_varies, find_factor, is_declared
from equimetric.studies.ledger.record import LedgerEntry
from equimetric.studies.ledger.settings import (
    FLOAT_BITS,
    NOT_SET,
    compare_dimensions,
    compare_factor,
    describe_groups,
    join_names,
)

__all__ = ["RunsByRow", "check_conditions", "check_repetitions", "check_tuning", "embedding_dims", "note_on_batches"]

RunsByRow: TypeAlias = Mapping[str, Sequence[RunConfig]]
"""Row of the table → configurations of its final runs."""

TRAINING_KEYS = ("optimizer", "batch", "training", "data.fold")
"""Conditions that do not apply to a row that does not train."""

MISSING_KEYS_BY_BASELINE = {
    "raw_pixels": ("model",),
    "raw_features": ("model.dim", "model.head", "model.head_init", "model.dropout"),
    "pretrained": ("model.head_init",),
}
"""Further conditions that do not apply to a baseline: pixels have no network, features no head."""


def check_conditions(
    runs: RunsByRow,
    *,
    varies: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
    tuned: Collection[str] = (),
) -> list[LedgerEntry]:
    """Compare the conditions of all rows; what differs and is not in `varies` is a fault that names the key.

    The learning rate of an objective's own parameters belongs to the method and may always differ. `dims` are those of
    rows whose learner forms another embedding than `model.dim` says. Files of weights are compared by their content. A
    row may have several values of a key, such as its folds: the others then must have the same ones. Baselines are
    compared by what they have. `tuned` are keys that a search chooses for each row.
    """
    check_varies(varies)
    settings = {row: row_settings(configs) for row, configs in runs.items()}
    keys = list(dict.fromkeys(key for row_values in settings.values() for key in row_values))
    # A table of options that one row lacks, such as that of a parameter group, is not set there.
    for row, row_values in settings.items():
        lacking = {key: NOT_SET for key in keys if key not in row_values and not is_exempt(key, runs[row][0])}
        settings[row] = {**row_values, **lacking}
    keys_by_factor: dict[str, list[str]] = {}
    for key in keys:
        keys_by_factor.setdefault(find_factor(key).name, []).append(key)
    entries = []
    for factor in FACTORS.values():
        if factor.name == "dimension":
            entries.append(compare_row_dimensions(factor, runs, dims or {}, varies))
        elif factor.name in keys_by_factor:
            entries.append(compare_factor(factor, keys_by_factor[factor.name], settings, varies, tuned=tuned))
    return entries


def row_settings(configs: Sequence[RunConfig]) -> dict[str, str | None]:
    """Dotted key → its value as text, or its values where the runs of a row have several."""
    settings: dict[str, list[str]] = {}
    # Most runs of a row differ in their seed alone.
    for config in {config.model_dump_json(exclude={"seed"}): config for config in configs}.values():
        for key, value in flat_conditions(config):
            values = settings.setdefault(key, [])
            if value not in values:
                values.append(value)
    return {key: ", ".join(sorted(values)) for key, values in settings.items()}


def flat_conditions(config: RunConfig) -> Iterator[tuple[str, str]]:
    """The conditions of a run as dotted keys and texts, without those that a baseline cannot have."""
    values = config.model_dump(include=set(Conditions.model_fields), exclude=IRRELEVANT_KEYS)
    values["training"]["device"] = choose_device(config.training.device)
    values["model"]["pretrained"] = describe_pretrained(config.model)
    return ((key, text) for key, text in flatten(values) if key not in METHOD_KEYS and not is_exempt(key, config))


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """{'model': {'dim': 64}} → 'model.dim', '64'."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", to_setting(value)


def to_setting(value: Any) -> str:
    """A value of a configuration as text."""
    if value is None:
        return NOT_SET
    return value if isinstance(value, str) else json.dumps(value)


def describe_pretrained(model: ModelConfig) -> str | None:
    """Initial weights by their content: 'sha256 1f2e3d4c5b6a'; by name where there is no file, or it is not here."""
    try:
        file = find_weight_file(model.backbone, model.pretrained)
    except EquimetricError:
        file = None
    return model.pretrained if file is None else f"sha256 {hash_file(file)[:12]}"


def is_baseline(config: RunConfig) -> bool:
    """Whether a row takes no step."""
    return not LEARNERS.find(config.learner.name).trains


def is_exempt(key: str, config: RunConfig) -> bool:
    """Whether the row of this run cannot have a condition."""
    if not is_baseline(config):
        return False
    exempt = (*TRAINING_KEYS, *MISSING_KEYS_BY_BASELINE.get(config.learner.name, ()))
    return any(key == table or key.startswith(f"{table}.") for table in exempt)


def compare_row_dimensions(
    factor: Factor, runs: RunsByRow, dims: Mapping[str, int], varies: Sequence[str]
) -> LedgerEntry:
    """Compare the dimensions of the rows that have a head, those of `dims` in place of `model.dim`."""
    sizes: dict[str, tuple[int, int] | None] = {}
    for row, configs in runs.items():
        for config in configs:
            dim = dims.get(row, config.model.dim)
            size = None if dim is None else (dim, 1 if config.evaluation.binarise else FLOAT_BITS)
            if not is_exempt("model.dim", config) and sizes.setdefault(row, size) != size:
                sizes[f"{row}, seed {config.seed}"] = size
    dimensions, bits = ({size[axis] for size in sizes.values() if size} for axis in (0, 1))
    only_bits = len(dimensions) == 1 < len(bits)
    return compare_dimensions(factor, "evaluation.binarise" if only_bits else "model.dim", sizes, varies)


def embedding_dims(runs: RunsByRow, data: RunData) -> dict[str, int]:
    """Row → dimension of the embedding of one image, where the learner may form another one than `model.dim` says."""
    dims = {}
    for row, configs in runs.items():
        config = configs[0]
        if config.learner.name != "single" and not is_baseline(config):
            learner = build_learner(config, data.shape, pretrained=False)
            dims[row] = embed_images(learner, take_images(data.eval_data.images, data.split.train[:1])).shape[1]
    return dims


def check_tuning(runs: RunsByRow, trials: Mapping[str, int | None], *, varies: Sequence[str] = ()) -> LedgerEntry:
    """Compare the numbers of trials; None for a row that has nothing to tune, 0 for one that is not in `trials`."""
    tuned = {row: trials.get(row, 0) for row, configs in runs.items() if not is_baseline(configs[0])}
    settings = {row: {"trials": f"{count:,}"} for row, count in tuned.items() if count is not None}
    return compare_factor(FACTORS["tuning"], ["trials"], settings, varies)


def check_repetitions(runs: RunsByRow) -> LedgerEntry:
    """Whether every trained row has several seeds, the same for all."""
    trained = {row: configs for row, configs in runs.items() if not is_baseline(configs[0])}
    seeds = {row: ", ".join(map(str, sorted({config.seed for config in configs}))) for row, configs in trained.items()}
    single = tuple(row for row, text in seeds.items() if "," not in text)
    if single:
        finding = f"one seed, so no interval: {'all methods' if len(single) == len(seeds) else join_names(single)}"
        return LedgerEntry(factor="intervals", status="violated", finding=finding, methods=single)
    if len({*seeds.values()}) > 1:
        return LedgerEntry(factor="intervals", status="differs", finding=f"seeds are {describe_groups(seeds)}")
    shared = next(iter(seeds.values()), "")
    finding = f"intervals over {shared.count(',') + 1} seeds"
    return LedgerEntry(factor="intervals", status="met", finding=finding)


def note_on_batches(runs: RunsByRow, varies: Sequence[str]) -> list[str]:
    """A note where batches are declared to have several shapes and also differ in their number of images."""
    batch = FACTORS["batch"]
    if not all(is_declared(f"batch.{key}", batch, varies) for key in ("classes", "samples")):
        return []
    images = {}
    for row, configs in runs.items():
        table = configs[0].batch
        if not is_baseline(configs[0]) and table.classes is not None:
            images[row] = f"{table.classes * table.samples * table.per_step:,}"
    if len({*images.values()}) < 2:
        return []
    return [f"Not only the shape of batches varies but also their size: images per step are {describe_groups(images)}."]
