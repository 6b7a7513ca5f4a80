"""Configurations: typed, complete, strict. A misspelt key is an error that names the nearest valid one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from equimetric.errors import EquimetricError, did_you_mean

__all__ = [
    "BatchConfig",
    "Conditions",
    "DataConfig",
    "LoggingConfig",
    "MethodConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RunConfig",
    "SplitConfig",
    "StudyConfig",
    "TrainingConfig",
    "load_config",
    "parse_overrides",
    "read_toml",
    "to_toml",
]


class Strict(BaseModel):
    """No unknown keys, no changes after reading, and no silent conversion of text to numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SplitConfig(Strict):
    """Training and test classes as a file has them, in place of the data set's own split."""

    file: str = Field(description="class lists frozen by `equimetric datasets shift`, a .json file")
    number: int = Field(-1, description="which of its splits, from 0 on; -1 is the last, the farthest shifted")


class DataConfig(Strict):
    """Which images, how they are seen, and which of their classes are for training, validation and test."""

    name: str = Field("glyphs", description="a data set of `equimetric datasets`; 'folder' for your own images")
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="options of the data set, e.g. root, size, damaged = 'skip', cache = 'disk', decoding = 'fast'",
    )
    fold: int = Field(0, ge=0, description="which block of the first half of the classes is for validation")
    folds: int = Field(4, ge=1, description="how many such blocks there are to choose from")
    split_seed: int | None = Field(
        None, ge=0, description="draw training and validation classes at random by this seed, not in order of label"
    )
    split: SplitConfig | None = Field(
        None,
        description="training and test classes from a file of shifted splits: { file = 'shifted.json', number = 4 }",
    )
    transform: str = Field(
        "affine", description="how images are seen in training and test, a name of `equimetric.data.TRANSFORMS`"
    )
    workers: int | None = Field(None, ge=1, description="decoding threads for images in files; one per core by default")


class ModelConfig(Strict):
    """The network."""

    backbone: str = Field(
        "small_cnn", description="a name of `equimetric.backbones.BACKBONES`, or 'timm:…' or 'torchvision:…'"
    )
    pretrained: str | None = Field(
        None, description="weights to start from: 'package', 'timm', 'torchvision', or the path of a file"
    )
    pooling: str | None = Field(
        None, description="of the last maps, a name of `equimetric.backbones.POOLINGS`; by default the backbone's own"
    )
    frozen_batch_norm: bool | Literal["statistics"] = Field(
        False, description="keep batch normalisation as it is: whole, or its running 'statistics' alone"
    )
    freeze: dict[str, float] | list[str] = Field(
        default_factory=dict,
        description="parts that do not learn, by the beginnings of parameter names, or the step from which on they do: "
        "{ backbone = 500 }; inf is never",
    )
    frozen: bool = Field(
        False,
        description="compute the backbone's features once, by the transform's test form, and train the head alone",
    )
    dim: int = Field(64, ge=1, description="embedding dimension")
    head: str = Field("linear", description="'linear', or 'layer_norm' as for normalised softmax")
    head_init: Literal["random", "pca"] = Field(
        "random", description="where the head starts: at random, or at the principal directions of training features"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout in the head")

    @model_validator(mode="after")
    def _frozen_leaves_nothing_to_freeze(self) -> ModelConfig:
        if self.frozen and self.freeze:
            raise ValueError("frozen trains the head alone, so there is nothing left for freeze; give one of them")
        return self


class BatchConfig(Strict):
    """C×M images that meet in a step."""

    kind: str = Field("class_balanced", description="which images meet, a name of `equimetric.batches.BATCHES`")
    classes: int = Field(32, ge=1, description="classes per batch (C), or pairs, or triples")
    samples: int = Field(4, ge=1, description="samples of each (M)")
    options: dict[str, Any] = Field(default_factory=dict, description="further options of this kind of batches")
    per_step: int = Field(1, ge=1, description="batches (or episodes) whose mean gradient makes one optimiser step")
    at_once: int | None = Field(
        None,
        ge=1,
        description="images in the network at a time: a larger batch passes it twice, for the same gradients in the "
        "memory of so many images; needs a network without batch normalisation, or with it frozen",
    )


class OptimizerConfig(Strict):
    """How parameters move. The network is trunk and head; the objective's own are proxies, boundaries and so on."""

    name: Literal["adamw", "adam", "rmsprop", "sgd"] = Field("adamw", description="the update rule")
    lr: float = Field(3e-3, gt=0, description="learning rate of the network")
    weight_decay: float = Field(1e-4, ge=0, description="weight decay of the network")
    head_lr: float | None = Field(None, gt=0, description="learning rate of the head, where not that of the network")
    head_weight_decay: float | None = Field(
        None, ge=0, description="weight decay of the head, where not that of the network"
    )
    objective_lr: float = Field(3e-2, gt=0, description="learning rate of the objective's own parameters")
    objective_weight_decay: float = Field(0.0, ge=0, description="weight decay of the objective's own parameters")
    objective_name: Literal["adamw", "adam", "rmsprop", "sgd"] | None = Field(
        None, description="the update rule of the objective's own parameters, where not that of the network"
    )
    objective_momentum: float | None = Field(
        None, ge=0, lt=1, description="momentum of the objective's own parameters; by default as for the network's rule"
    )
    objective_eps: float | None = Field(
        None, gt=0, description="eps of the objective's own parameters; by default as for the network's rule"
    )
    momentum: float | None = Field(None, ge=0, lt=1, description="of rmsprop and sgd; 0.9 where not given")
    eps: float | None = Field(
        None, gt=0, description="what adam, adamw and rmsprop add to the denominator; 1e-8 where not given"
    )
    warmup_steps: int = Field(0, ge=0, description="steps over which learning rates rise linearly to their full value")
    schedule: Literal["cosine", "constant", "linear", "step", "plateau"] = Field(
        "cosine",
        description="learning rates after the warm-up: fall to 0 over the budget by a half 'cosine' or by a 'linear' "
        "ramp, stay 'constant', are multiplied by `decay` at each 'step' of `milestones`, or whenever validation has "
        "reached a 'plateau'",
    )
    milestones: list[int] = Field(default=[], description="of schedule 'step': after how many steps rates are lowered")
    decay: float = Field(0.1, gt=0, lt=1, description="factor of the schedules 'step' and 'plateau'")
    plateau_steps: int | None = Field(
        None, ge=1, description="of schedule 'plateau': steps without a better validation before rates are lowered"
    )
    clip_norm: float | None = Field(None, gt=0, description="largest norm of the gradient of all parameters together")
    clip_value: float | None = Field(None, gt=0, description="largest absolute value of each entry of the gradient")

    @model_validator(mode="after")
    def _keys_belong_together(self) -> OptimizerConfig:
        for before, name in {"": self.name, "objective_": self.objective_name or self.name}.items():
            if getattr(self, f"{before}momentum") is not None and name in ("adam", "adamw"):
                raise ValueError(
                    f"{name!r} has no momentum to set; leave {before}momentum out or choose 'rmsprop' or 'sgd'"
                )
            if getattr(self, f"{before}eps") is not None and name == "sgd":
                raise ValueError(f"'sgd' divides by nothing, so {before}eps means nothing; leave it out")
        if (self.schedule == "step") != bool(self.milestones):
            raise ValueError("milestones and schedule = 'step' belong together; give both or neither")
        if sorted(set(self.milestones)) != self.milestones or min(self.milestones, default=1) < 1:
            raise ValueError(f"milestones must be ascending numbers of steps from 1 on, not {self.milestones}")
        if (self.schedule == "plateau") != (self.plateau_steps is not None):
            raise ValueError("plateau_steps and schedule = 'plateau' belong together; give both or neither")
        if self.clip_norm is not None and self.clip_value is not None:
            raise ValueError("gradients are clipped by norm or by value; give clip_norm or clip_value, not both")
        return self


class TrainingConfig(Strict):
    """The budget, and how it is computed."""

    steps: int = Field(600, ge=1, description="optimiser steps, at most")
    validate_every: int = Field(100, ge=1, description="steps between validations; each also saves a checkpoint")
    patience: int | None = Field(
        None, ge=1, description="stop at a validation when the best one lies more than so many steps back"
    )
    ema: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="judge and keep a moving average of the weights instead of the weights themselves, with this decay "
        "(0.999, say); in the first steps t with the smaller (1 + t) / (10 + t)",
    )
    log_every: int = Field(20, ge=1, description="steps between lines of the training log")
    threads: int = Field(1, ge=1, description="processor threads; fixed here because they change last digits")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where to compute; 'auto': cuda where there is one"
    )
    precision: Literal["float32", "bfloat16", "float64"] = Field(
        "float32",
        description="of the network; with 'bfloat16' its products are in half precision (autocast), while weights and "
        "objective stay in float32",
    )
    channels_last: bool = Field(False, description="keep images and kernels with their channels last, often faster")
    compile: bool = Field(False, description="compile the network (torch.compile): minutes at first, then faster steps")

    @model_validator(mode="after")
    def _patience_outlasts_a_validation(self) -> TrainingConfig:
        if self.patience is not None and self.patience < self.validate_every:
            raise ValueError(
                f"patience = {self.patience} would stop at the first validation that is not better; "
                f"give at least validate_every = {self.validate_every}"
            )
        return self


class LoggingConfig(Strict):
    """Where figures go beside metrics.jsonl; has no influence on them."""

    tensorboard: bool = Field(False, description="write TensorBoard events into the run's folder")
    mlflow: str | None = Field(
        None, description="an MLflow experiment to log to; the server is taken from MLFLOW_TRACKING_URI"
    )


class Conditions(Strict):
    """All that must be equal for a comparison to be fair."""

    data: DataConfig = Field(default_factory=DataConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    batch: BatchConfig = Field(default_factory=BatchConfig)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    logging: LoggingConfig = Field(default_factory=LoggingConfig)

    @model_validator(mode="after")
    def _warmup_ends_before_the_budget(self) -> Conditions:
        if self.optimizer.warmup_steps >= self.training.steps:
            raise ValueError(
                f"optimizer.warmup_steps = {self.optimizer.warmup_steps} leaves nothing of the "
                f"{self.training.steps} training.steps; lower it"
            )
        return self


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
        hint = " (options of the data set itself stand in data.options)" if table is DataConfig else ""
        return f"unknown key {key!r}; {did_you_mean(location[-1], names)}{hint}"
    if error["type"] == "missing":
        return f"the key {key!r} is missing"
    message = str(error["msg"]).removeprefix("Value error, ")
    # What is wrong with a whole table is said by the message alone.
    given = "" if isinstance(error.get("input", {}), dict) else f", got {error['input']!r}"
    return (f"{key}: " if key else "") + message[0].lower() + message[1:] + given


def fields_at(model: type[BaseModel], location: Sequence[str]) -> type[BaseModel] | None:
    """The model of the table at a path of keys."""
    current: Any = model
    for part in location:
        if current is dict:
            current = MethodConfig
        elif part in current.model_fields:
            annotation = current.model_fields[part].annotation
            tables = [
                choice for choice in get_args(annotation) if isinstance(choice, type) and issubclass(choice, Strict)
            ]
            current = dict if part == "methods" else tables[0] if tables else annotation
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
