"""The key of a run: everything that determines its result, by content."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from equimetric.backbones import find_weight_file
from equimetric.data.registry import path_options
from equimetric.file_hashes import hash_file
from equimetric.own_parts import OwnParts, find_parts
from equimetric.processes import choose_device
from equimetric.runs.configuration import RunConfig
from equimetric.runs.start import start_weights

__all__ = ["PROTOCOL_VERSION", "Role", "RunKey", "run_inputs", "run_parts"]

PROTOCOL_VERSION = 2
"""Raised whenever the same configuration gives other numbers; old results are then kept apart from new ones."""

Role: TypeAlias = Literal["final", "trial", "baseline", "joined", "probe", "refit"]

IRRELEVANT_KEYS: dict[str, Any] = {
    "plugins": True,
    "logging": True,
    "data": {"workers"},
    "training": {"checkpoint_seconds"},
}
"""Keys of the configuration that cannot change a result."""

OMITTED_DEFAULTS: dict[str, Any] = {
    "refit": None,
    "data.weights": None,
    "data.held_out": None,
    "data.rounds": None,
    "data.parts": None,
    "model.start": None,
    "evaluation.parents": None,
    "evaluation.across": None,
    "evaluation.cohort.form": "mean",
}
"""Newer option → the default at which it is left out: such a run has the key it had before there was the option."""


@dataclass(frozen=True)
class RunKey:
    """Identity of a run within a study, and the hash of everything that determines its result.

    Attributes:
        method: the row of the table, or the method of a single run.
        seed: seed of everything random.
        fold: index of the block of validation classes.
        trial: number of the trial of a search, None outside one.
        role: "final", "trial" of a search, "baseline", "joined" fold models, "probe" of final runs, or "refit" of a
            finished run on more classes.
        content: hash of configuration, data, weight files and protocol version.
    """

    method: str
    seed: int
    fold: int
    trial: int | None
    role: Role
    content: str

    @classmethod
    def from_config(
        cls,
        config: RunConfig,
        data_fingerprint: str,
        *,
        method: str | None = None,
        trial: int | None = None,
        role: Role = "final",
        processes: int = 1,
    ) -> RunKey:
        """The key of a run of this configuration on data with this fingerprint, in a number of processes."""
        inputs = {**run_inputs(config, data_fingerprint), "trial": trial, "role": role, "processes": processes}
        content = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]
        return cls(method or config.method, config.seed, config.data.fold, trial, role, content)

    @property
    def folder(self) -> str:
        """The name of the run's folder below that of its method."""
        trial = "" if self.trial is None else f"t{self.trial}-"
        return f"{trial}{self.seed}-{self.content}"


def run_inputs(config: RunConfig, data_fingerprint: str) -> dict[str, Any]:
    """Everything that determines a result, files by content instead of by path."""
    values = config.model_dump(exclude=IRRELEVANT_KEYS)
    # The fingerprint covers the content of these files, wherever they are.
    for name in path_options(config.data.name):
        values["data"]["options"].pop(name, None)
    if values["data"]["split"] is not None:
        values["data"]["split"].pop("file")
    if values["refit"] is not None:
        values["refit"].pop("folder")
    for option, default in OMITTED_DEFAULTS.items():
        omit_default(values, option, default)
    cohort = values["evaluation"]["cohort"]
    if cohort is not None and "auto" not in cohort.values():
        # Only a choice among cohorts compares rates.
        del cohort["far"]
    # 'auto' is another device, and gives other last digits, on another machine.
    values["training"]["device"] = choose_device(config.training.device)
    if config.model.start is not None:
        values["model"]["start"] = hash_file(start_weights(config.model.start))
    weights = find_weight_file(config.model.backbone, config.model.pretrained)
    if weights is not None:
        values["model"]["pretrained"] = hash_file(weights)
    inputs = {"config": values, "data": data_fingerprint, "protocol": PROTOCOL_VERSION}
    own = run_parts(config).digests()
    return {**inputs, "plugins": own} if own else inputs


def run_parts(config: RunConfig) -> OwnParts:
    """The components of the user's own that a run names; in paths nothing is named."""
    values = config.model_dump(exclude={**IRRELEVANT_KEYS, "refit": True})
    for name in path_options(config.data.name):
        values["data"]["options"].pop(name, None)
    values["data"].pop("split")
    for name in ("start", "pretrained"):
        values["model"].pop(name)
    return find_parts({**values, "plugins": config.plugins})


def omit_default(values: dict[str, Any], option: str, default: Any) -> None:
    """Delete an option, such as "data.weights", where it has its default; its table may be missing."""
    *tables, name = option.split(".")
    for table in tables:
        values = values[table] or {}
    if name in values and values[name] == default:
        del values[name]
