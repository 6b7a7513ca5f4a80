"""Configurations: typed, complete, strict. A misspelt key is an error that names the nearest valid one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from equimetric.errors import EquimetricError, did_you_mean

__all__ = [
    "BatchConfig",
    "Conditions",
    "DataConfig",
    "MethodConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RunConfig",
    "StudyConfig",
    "TrainingConfig",
    "load_config",
    "parse_overrides",
    "to_toml",
]


class Strict(BaseModel):
    """No unknown keys, no changes after reading, and no silent conversion of text to numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DataConfig(Strict):
    """Which images, and which of their classes are for training, validation and test."""

    name: str = Field("glyphs", description="a built-in data set, or 'folder' for your own images")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the data set, e.g. root and size")
    fold: int = Field(0, ge=0, description="which block of the first half of the classes is for validation")
    folds: int = Field(4, ge=1, description="how many such blocks there are to choose from")
    augmentation: str = Field("affine", description="'affine' or 'none'")


class ModelConfig(Strict):
    """The network."""

    backbone: str = Field("small_cnn", description="name of the backbone")
    dim: int = Field(64, ge=1, description="embedding dimension")
    head: str = Field("linear", description="'linear', or 'layer_norm' as for normalised softmax")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout in the head")


class BatchConfig(Strict):
    """C×M images that meet in a step."""

    kind: str = Field("class_balanced", description="which images meet, a name of `equimetric.batches.BATCHES`")
    classes: int = Field(32, ge=1, description="classes per batch (C), or pairs, or triples")
    samples: int = Field(4, ge=1, description="samples of each (M)")
    options: dict[str, Any] = Field(default_factory=dict, description="further options of this kind of batches")


class OptimizerConfig(Strict):
    """How parameters move."""

    name: Literal["adamw", "adam", "rmsprop", "sgd"] = Field("adamw", description="the update rule")
    lr: float = Field(3e-3, gt=0, description="learning rate of the network")
    weight_decay: float = Field(1e-4, ge=0, description="weight decay of the network; the objective has none")
    objective_lr: float = Field(3e-2, gt=0, description="learning rate of the objective's own parameters")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="how learning rates fall over the budget")


class TrainingConfig(Strict):
    """The budget."""

    steps: int = Field(600, ge=1, description="optimiser steps")
    validate_every: int = Field(100, ge=1, description="steps between validations; each also saves a checkpoint")
    log_every: int = Field(20, ge=1, description="steps between lines of the training log")
    threads: int = Field(1, ge=1, description="processor threads; fixed here because they change last digits")


class Conditions(Strict):
    """All that must be equal for a comparison to be fair."""

    data: DataConfig = Field(default_factory=DataConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    batch: BatchConfig = Field(default_factory=BatchConfig)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)


class RunConfig(Conditions):
    """One model: a method, its options, a seed, and the conditions."""

    method: str = Field("multi_similarity", description="one of `equimetric methods`, or a sum such as 'margin+tcm'")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the method")
    seed: int = Field(0, ge=0, description="seed of everything random")


class MethodConfig(Strict):
    """What may differ between the methods of a study: the method itself and what belongs to it alone."""

    method: str = Field("", description="the method; by default the name of the table")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the method")
    objective_lr: float | None = Field(None, gt=0, description="learning rate of the objective's own parameters")


class StudyConfig(Conditions):
    """A fair comparison: methods × seeds under equal conditions."""

    name: str = Field(description="name of the study and of its folder under the output folder")
    title: str = Field("", description="headline of the report")
    seeds: list[int] = Field(default=[0, 1, 2], min_length=1, description="one run of every method for each seed")
    baselines: list[Literal["raw_pixels", "untrained"]] = Field(
        default=["raw_pixels", "untrained"], description="rows that every method must beat"
    )
    methods: dict[str, MethodConfig] = Field(min_length=1, description="one table for each method")
    workers: int = Field(2, ge=1, description="runs at the same time, each in a process of its own")

    @field_validator("name")
    @classmethod
    def _name_is_a_folder(cls, name: str) -> str:
        return check_folder_name(name)

    @field_validator("methods")
    @classmethod
    def _methods_are_folders(cls, methods: dict[str, MethodConfig]) -> dict[str, MethodConfig]:
        reserved = {"raw_pixels", "untrained", "report"} & set(methods)
        if reserved:
            raise ValueError(f"{reserved.pop()!r} names a baseline or the report; name the method otherwise")
        return {check_folder_name(name): method for name, method in methods.items()}

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds) or min(seeds) < 0:
            raise ValueError("seeds must be different whole numbers from 0 on")
        return seeds

    def conditions(self) -> dict[str, Any]:
        """The part that is equal for all runs."""
        return self.model_dump(include=set(Conditions.model_fields))


def check_folder_name(name: str) -> str:
    """Names become folders of the run tree, so they must not climb out of it."""
    if not name or name.startswith(".") or not all(c.isalnum() or c in "._-+ " for c in name) or name != name.strip():
        raise ValueError(f"{name!r} cannot be a folder name; use letters, digits and . _ - +")
    return name


Model = TypeVar("Model", bound=Strict)


def load_config(
    source: Model | Mapping[str, Any] | str | Path, model: type[Model], overrides: Mapping[str, Any] | None = None
) -> Model:
    """A configuration from a TOML file, a mapping or an already read one, with dotted keys overridden."""
    if isinstance(source, model):
        values = source.model_dump()
    elif isinstance(source, Mapping):
        values = json.loads(json.dumps(dict(source)))
    else:
        values = read_toml(Path(str(source)))
    for key, value in (overrides or {}).items():
        set_dotted(values, key, value)
    where = "" if isinstance(source, (Mapping, Strict)) else f"{source}: "
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise EquimetricError(where + "; ".join(explain(model, e) for e in error.errors())) from None


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EquimetricError(f"there is no configuration file {str(path)!r}; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise EquimetricError(f"the configuration file {str(path)!r} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise EquimetricError(f"{path} is not valid TOML: {error}") from None


def set_dotted(values: dict[str, Any], key: str, value: Any) -> None:
    """values["optimizer"]["lr"] = value for the key 'optimizer.lr'."""
    *tables, last = key.split(".")
    for table in tables:
        inner = values.setdefault(table, {})
        if not isinstance(inner, dict):
            raise EquimetricError(f"{key!r} cannot be set: {table!r} is a value, not a table")
        values = inner
    values[last] = value


def parse_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """['--optimizer.lr', '1e-5', '--seed=3'] → {'optimizer.lr': 1e-5, 'seed': 3}; values are read as TOML."""
    overrides: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        key, equals, text = argument.partition("=")
        if not key.startswith("--") or len(key) < 3:
            raise EquimetricError(f"cannot read {argument!r}; overrides look like --optimizer.lr 1e-4")
        if not equals:
            if not rest:
                raise EquimetricError(f"{key} needs a value, e.g. {key} 1e-4")
            text = rest.pop(0)
        overrides[key[2:]] = parse_value(text)
    return overrides


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself where it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def explain(model: type[BaseModel], error: Any) -> str:
    """One sentence for one validation error, with the nearest valid key for an unknown one."""
    location = [str(part) for part in error["loc"]]
    key = ".".join(location)
    if error["type"] == "extra_forbidden":
        table = fields_at(model, location[:-1])
        if table is MethodConfig and location[-1] in Conditions.model_fields:
            return (
                f"{key}: {location[-1]!r} may not differ between methods, for the comparison would be unfair; "
                f"set it once for the whole study as [{location[-1]}]"
            )
        names = table.model_fields if table else ()
        return f"unknown key {key!r}; {did_you_mean(location[-1], names)}"
    if error["type"] == "missing":
        return f"the key {key!r} is missing"
    message = error["msg"].removeprefix("Value error, ")
    return f"{key}: {message[0].lower()}{message[1:]}" + ("" if "input" not in error else f", got {error['input']!r}")


def fields_at(model: type[BaseModel], location: Sequence[str]) -> type[BaseModel] | None:
    """The model of the table at a path of keys."""
    current: Any = model
    for part in location:
        if current is dict:
            current = MethodConfig
        elif part in current.model_fields:
            annotation = current.model_fields[part].annotation
            current = dict if part == "methods" else annotation
        else:
            return None
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None


def to_toml(config: Strict) -> str:
    """The complete configuration as TOML; keys without a value are left out."""
    import tomli_w

    return tomli_w.dumps(without_none(config.model_dump()))


def without_none(value: Any) -> Any:
    """TOML has no null: drop such keys."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return value
