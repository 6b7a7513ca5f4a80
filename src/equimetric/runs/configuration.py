"""The configuration of one run: data, model, learner, batches, optimiser, budget, evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AllowInfNan, Field, field_validator, model_validator

from equimetric.configuration import Options, Strict
from equimetric.evaluation import METRICS, parse_metrics
from equimetric.evaluation.cohort import check_cohort_metrics
from equimetric.runs.refit import RefitConfig
from equimetric.runs.regimes import fill_defaults

__all__ = [
    "BatchConfig",
    "CohortConfig",
    "Conditions",
    "DataConfig",
    "EvaluationConfig",
    "GroupConfig",
    "LearnerConfig",
    "LoggingConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RunConfig",
    "SplitConfig",
    "TrainingConfig",
]


class SplitConfig(Strict):
    """Training and test classes from a file, in place of the data set's own split."""

    file: str = Field(description="class lists written by `equimetric datasets shift`, a .json file")
    number: int = Field(-1, description="which of its splits, counted from 0; -1 is the last, the farthest shifted")


class DataConfig(Strict):
    """Which images, through which transform, and which of their classes train, validate and test."""

    name: str = Field("glyphs", description="a data set of `equimetric datasets`; 'folder' for your own images")
    options: Options = Field(
        default_factory=dict,
        description="options of the data set, e.g. root, size (by default at least the backbone's input), min_images, "
        "damaged = 'skip', cache = 'disk', decoding = 'fast'",
    )
    fold: int = Field(0, ge=0, description="which block of the training half of the classes is for validation")
    folds: int = Field(4, ge=1, description="number of such blocks")
    split_seed: int | None = Field(
        None,
        ge=0,
        description="shuffle training and validation classes by this seed; default: label order",
    )
    split: SplitConfig | None = Field(
        None,
        description="training and test classes from a file of shifted splits: { file = 'shifted.json', number = 4 }",
    )
    transform: str = Field(
        "affine", description="crops and augmentation in training and test, a name of `equimetric.data.TRANSFORMS`"
    )
    workers: int | None = Field(None, ge=1, description="decoding threads for images in files; one per core by default")

    @classmethod
    def explain_unknown(cls, path: str, key: str) -> str:
        """Options of the data set itself are often written one table too high."""
        return super().explain_unknown(path, key) + " (options of the data set itself stand in data.options)"


class ModelConfig(Strict):
    """The network."""

    backbone: str = Field(
        "small_cnn", description="a name of `equimetric.backbones.BACKBONES`, or 'timm:…' or 'torchvision:…'"
    )
    pretrained: str | None = Field(
        None, description="initial weights: 'package', 'timm', 'torchvision', or the path of a file"
    )
    pooling: str | None = Field(
        None,
        description="pooling of the last maps, a name of `equimetric.backbones.POOLINGS`",
    )
    frozen_batch_norm: bool | Literal["statistics"] = Field(
        False,
        description="freeze batch normalisation: all of it, or its running 'statistics' alone",
    )
    freeze: dict[str, Annotated[float, AllowInfNan(True)]] | list[str] = Field(
        default_factory=dict,
        description="frozen parts, by prefixes of parameter names, or the step from which each trains: "
        "{ backbone = 500 }; inf is never",
    )
    frozen: bool = Field(
        False,
        description="compute the backbone's features once, with the test view, and train the head alone",
    )
    dim: int | None = Field(
        None,
        ge=1,
        description="embedding dimension; default: 64 from scratch, else 256, or what the data allow",
    )
    head: str = Field("linear", description="'linear', or 'layer_norm' as for normalised softmax")
    head_init: Literal["random", "pca"] = Field(
        "random", description="initial head: random, or the principal components of the training features"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout in the head")

    @model_validator(mode="after")
    def _frozen_leaves_nothing_to_freeze(self) -> ModelConfig:
        if self.frozen and self.freeze:
            raise ValueError("frozen trains the head alone, so there is nothing left for freeze; give one of them")
        return self


class BatchConfig(Strict):
    """Which images a step compares: C classes with M samples each."""

    kind: str = Field("class_balanced", description="batch sampler, a name of `equimetric.batches.BATCHES`")
    classes: int | None = Field(
        None, ge=1, description="classes per batch (C), or pairs, or triples; default: 32, or all where there are fewer"
    )
    samples: int = Field(4, ge=1, description="samples of each (M)")
    options: Options = Field(default_factory=dict, description="further options of the sampler")
    per_step: int = Field(1, ge=1, description="batches (or episodes) averaged for one optimiser step")
    at_once: int | None = Field(
        None,
        ge=1,
        description="images in the network at a time: a larger batch passes it twice, for the same gradients in the "
        "memory of that many images; needs frozen batch normalisation, or none",
    )


class GroupConfig(Strict):
    """How one named group of a learner's parameters is updated, where it differs from the network."""

    name: Literal["adamw", "adam", "rmsprop", "sgd"] | None = Field(None, description="update rule")
    lr: float | None = Field(None, gt=0, description="learning rate")
    weight_decay: float | None = Field(None, ge=0, description="weight decay")
    momentum: float | None = Field(None, ge=0, lt=1, description="momentum of rmsprop and sgd")
    eps: float | None = Field(None, gt=0, description="eps of adam, adamw and rmsprop")


class OptimizerConfig(Strict):
    """Update rules, learning rates, schedules. The network is trunk and head; the objective has proxies and so on."""

    name: Literal["adamw", "adam", "rmsprop", "sgd"] = Field("adamw", description="update rule")
    lr: float = Field(3e-3, gt=0, description="learning rate of the network")
    weight_decay: float = Field(1e-4, ge=0, description="weight decay of the network")
    head_lr: float | None = Field(None, gt=0, description="learning rate of the head; default: that of the network")
    head_weight_decay: float | None = Field(
        None, ge=0, description="weight decay of the head; default: that of the network"
    )
    objective_lr: float = Field(3e-2, gt=0, description="learning rate of the objective's own parameters")
    objective_weight_decay: float = Field(0.0, ge=0, description="weight decay of the objective's own parameters")
    objective_name: Literal["adamw", "adam", "rmsprop", "sgd"] | None = Field(
        None, description="update rule of the objective's own parameters; default: that of the network"
    )
    objective_momentum: float | None = Field(
        None, ge=0, lt=1, description="momentum of the objective's own parameters; default: that of the network"
    )
    objective_eps: float | None = Field(
        None, gt=0, description="eps of the objective's own parameters; default: that of the network"
    )
    momentum: float | None = Field(None, ge=0, lt=1, description="momentum of rmsprop and sgd; default 0.9")
    eps: float | None = Field(None, gt=0, description="eps of adam, adamw and rmsprop; default 1e-8")
    groups: dict[str, GroupConfig] = Field(
        default_factory=dict,
        description="further parameter groups of the learner by name, as in [optimizer.groups.adversary]",
    )
    warmup_steps: int = Field(0, ge=0, description="steps over which learning rates rise linearly from 0")
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

    @field_validator("groups")
    @classmethod
    def _standard_groups_have_keys(cls, groups: dict[str, GroupConfig]) -> dict[str, GroupConfig]:
        for name, keys in {"trunk": "lr, weight_decay", "head": "head_lr", "objective": "objective_lr"}.items():
            if name in groups:
                raise ValueError(f"the group {name!r} has keys of its own in [optimizer] ({keys}, …); use those")
        return groups

    @model_validator(mode="after")
    def _keys_belong_together(self) -> OptimizerConfig:
        rules = [("", self.name, self.momentum, self.eps)]
        rules += [("objective_", self.objective_name or self.name, self.objective_momentum, self.objective_eps)]
        rules += [(f"groups.{key}.", own.name or self.name, own.momentum, own.eps) for key, own in self.groups.items()]
        for before, name, momentum, eps in rules:
            if momentum is not None and name in ("adam", "adamw"):
                raise ValueError(
                    f"{name!r} has no momentum to set; leave {before}momentum out or choose 'rmsprop' or 'sgd'"
                )
            if eps is not None and name == "sgd":
                raise ValueError(f"'sgd' has no eps; leave {before}eps out")
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
    """The training budget, and how it is computed."""

    steps: int = Field(600, ge=1, description="optimiser steps, at most")
    validate_every: int = Field(100, ge=1, description="steps between validations; each also saves a checkpoint")
    patience: int | None = Field(
        None, ge=1, description="stop at a validation when the best one is more than this many steps back"
    )
    ema: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="evaluate and keep a moving average of the weights instead of the weights, with this decay "
        "(0.999, say); in the first steps t with the smaller (1 + t) / (10 + t)",
    )
    log_every: int = Field(20, ge=1, description="steps between lines of the training log")
    threads: int = Field(1, ge=1, description="CPU threads; fixed because their number changes the last digits")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="'auto' takes cuda where there is one")
    precision: Literal["float32", "bfloat16", "float64"] = Field(
        "float32",
        description="of the network; 'bfloat16' runs it under autocast, weights and objective stay in float32",
    )
    channels_last: bool = Field(False, description="memory format channels_last, often faster")
    compile: bool = Field(False, description="torch.compile the network: minutes at first, then faster steps")

    @model_validator(mode="after")
    def _patience_outlasts_a_validation(self) -> TrainingConfig:
        if self.patience is not None and self.patience < self.validate_every:
            raise ValueError(
                f"patience = {self.patience} would stop at the first validation that is not better; "
                f"give at least validate_every = {self.validate_every}"
            )
        return self


class LoggingConfig(Strict):
    """Where metrics go beside metrics.jsonl; no influence on them."""

    tensorboard: bool = Field(False, description="write TensorBoard events into the run's folder")
    mlflow: str | None = Field(
        None, description="an MLflow experiment to log to; the server is taken from MLFLOW_TRACKING_URI"
    )


class CohortConfig(Strict):
    """Classes of the run by which the similarities of its test classes are normalised."""

    part: Literal["train", "validation"] = Field("train", description="which classes are the cohort")
    strength: float = Field(0.5, ge=0, le=1, description="from 0, no normalisation, to 1")
    nearest: int = Field(50, ge=1, description="how many of the most similar cohort images count")


class EvaluationConfig(Strict):
    """What is measured on validation and test classes."""

    metrics: list[str] = Field(
        default=["recall@1", "recall@2", "recall@4", "recall@8", "r_precision", "map@r"],
        min_length=1,
        description="names as for `equimetric evaluate`, such as recall@1, map@r, nmi, eer, tar@far=1e-3, opis",
    )
    ks: list[int] | None = Field(None, min_length=1, description="shorthand: replaces the recall@K of `metrics`")
    selected_by: str = Field("map@r", description="validation metric that selects the best weights; higher is better")
    geometry: Literal["cosine", "euclidean", "dot"] = Field("cosine", description="how embeddings are compared")
    binarise: bool = Field(False, description="compare the signs of the embeddings by Hamming distance")
    cohort: CohortConfig | None = Field(
        None, description="normalise the similarities of test images by a cohort of other classes: { strength = 0.5 }"
    )

    @model_validator(mode="after")
    def _binary_codes_have_one_geometry(self) -> EvaluationConfig:
        if self.binarise and self.geometry != "cosine":
            raise ValueError("binarise compares signs by Hamming distance; leave geometry out")
        return self

    @model_validator(mode="after")
    def _metrics_exist(self) -> EvaluationConfig:
        parsed = parse_metrics(self.names())
        if self.cohort is not None:
            if self.binarise or self.geometry != "cosine":
                raise ValueError("a cohort normalises cosines; leave geometry and binarise out, or the cohort")
            check_cohort_metrics(parsed)
        (selecting,) = parse_metrics(self.selected_by)
        if not METRICS[selecting.family].higher_is_better:
            raise ValueError(
                f"selected_by keeps the weights with the largest value, which {self.selected_by!r} is not meant for; "
                "choose a metric such as 'map@r' or 'tar@far=1e-2'"
            )
        return self

    def names(self) -> list[str]:
        """The metrics to report, the one that selects the best weights among them."""
        names = list(self.metrics)
        if self.ks is not None:
            names = [f"recall@{k}" for k in self.ks] + [name for name in names if not name.startswith("recall@")]
        return list(dict.fromkeys([*names, self.selected_by]))

    def compared_by(self) -> Literal["cosine", "euclidean", "dot", "hamming"]:
        """The geometry of `evaluate`."""
        return "hamming" if self.binarise else self.geometry


class LearnerConfig(Strict):
    """How embeddings are formed and trained."""

    name: str = Field("single", description="a name of `equimetric.learners.LEARNERS`")
    options: Options = Field(default_factory=dict, description="options of the learner")


class Conditions(Strict):
    """Everything that must be equal for a comparison to be fair."""

    data: DataConfig = Field(default_factory=DataConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    batch: BatchConfig = Field(default_factory=BatchConfig)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    logging: LoggingConfig = Field(default_factory=LoggingConfig)

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, values: Any) -> Any:
        return fill_defaults(values) if isinstance(values, Mapping) else values

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
    options: Options = Field(default_factory=dict, description="options of the method")
    learner: LearnerConfig = Field(default_factory=LearnerConfig)
    seed: int = Field(0, ge=0, description="seed of everything random")
    refit: RefitConfig | None = Field(
        None, description="makes a final model of a finished run; written by `equimetric train RUN --final training`"
    )

    @property
    def steps(self) -> int:
        """Optimiser steps, at most: the budget, or for a final model the best step of its source."""
        return min(self.training.steps, self.refit.steps) if self.refit else self.training.steps
