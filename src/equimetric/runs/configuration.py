"""The configuration of one run: data, model, learner, batches, optimiser, budget, evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AllowInfNan, Field, field_validator, model_validator

from equimetric.configuration import Options, Strict
from equimetric.runs.evaluation_config import CohortConfig, EvaluationConfig
from equimetric.runs.optimizer_config import GroupConfig, OptimizerConfig
from equimetric.runs.refit import RefitConfig
from equimetric.runs.regimes import STEPS, fill_defaults

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
    "PartsConfig",
    "RoundsConfig",
    "RunConfig",
    "SplitConfig",
    "TrainingConfig",
]


class SplitConfig(Strict):
    """Training and test classes from a file, in place of the data set's own split."""

    file: str = Field(description="class lists written by `equimetric datasets shift`, a .json file")
    number: int = Field(-1, description="which of its splits, counted from 0; -1 is the last, the farthest shifted")


class PartsConfig(Strict):
    """Classes of each part, by name; no class is in two parts, and classes in no list are left out."""

    train: list[str] = Field(description="classes to train on")
    validation: list[str] = Field(description="classes that choose weights, options and cohort")
    cohort: list[str] | None = Field(None, description="classes for evaluation.cohort.part = 'cohort'")
    calibration: list[str] | None = Field(None, description="classes to calibrate a threshold on")
    test: list[str] = Field(description="classes to test on, once")

    def lists(self) -> dict[str, list[str]]:
        """The configured lists, by part."""
        return self.model_dump(exclude_none=True)

    def describe(self) -> str:
        """'listed by name: 31 train, 10 validation, 10 cohort, 15 calibration, 15 test'."""
        return "listed by name: " + ", ".join(f"{len(names)} {part}" for part, names in self.lists().items())


class RoundsConfig(Strict):
    """Training classes that arrive in rounds, in the order of their labels."""

    of: int = Field(4, ge=2, description="number of rounds")
    number: int = Field(ge=1, description="the round that this run trains, from 1 on")
    keep: Literal["all", "latest"] = Field(
        "all", description="train on the classes of all rounds so far, or of the latest alone"
    )
    test_share: float = Field(
        0.25, ge=0, lt=1, description="share of the images of every class that no round trains on, to test on"
    )

    def describe(self) -> str:
        """'training classes of round 2 of 4 alone'."""
        if self.keep == "latest":
            return f"training classes of round {self.number} of {self.of} alone"
        return f"training classes of the first {self.number} of {self.of} rounds"


class DataConfig(Strict):
    """The images, their transform, and the split of their classes into training, validation and test."""

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
    parts: PartsConfig | None = Field(
        None, description="lists of class names: train, validation, test, and set aside from them cohort, calibration"
    )
    held_out: str | None = Field(
        None,
        description="hold out whole superclasses: an attribute of the classes, or a column of a manifest, whose values "
        "are each in one part alone",
    )
    rounds: RoundsConfig | None = Field(
        None,
        description="train on classes that arrive in rounds: { of = 4, number = 2, keep = 'all' }; with model.start "
        "after the run of the round before",
    )
    transform: str = Field(
        "affine", description="crops and augmentation in training and test, a name of `equimetric.data.TRANSFORMS`"
    )
    weights: str | None = Field(
        None,
        description="an attribute or column with a number for each image, how often it counts in training: 0 as if "
        "absent, 2 as if present twice",
    )
    workers: int | None = Field(None, ge=1, description="decoding threads for images in files; one per core by default")

    def describe_split(self, official: bool | None = None) -> str:
        """The test and validation classes, in words; `official` says whether the data set has a split of its own.

        None where the data are not at hand.
        """
        if self.parts is not None:
            parts = self.parts.describe()
        elif self.held_out is not None:
            parts = f"whole values of {self.held_out!r} for test and validation, validation block {self.fold + 1}"
        else:
            test = {
                True: "the data set's own",
                False: "by class, the second half for the test",
                None: "the data set's own, or by class with the second half for the test if it has none",
            }[official]
            if self.split is not None:
                test = f"class lists number {self.split.number} of {Path(self.split.file).name}"
            parts = f"{test}; validation block {self.fold + 1} of {self.folds} of the other classes"
        parts += "" if self.split_seed is None else f", shuffled by seed {self.split_seed}"
        return parts if self.rounds is None else f"{parts}; {self.rounds.describe()}"

    @model_validator(mode="after")
    def _one_split(self) -> DataConfig:
        names = [name for name in ("split", "parts", "held_out") if getattr(self, name) is not None]
        if len(names) > 1:
            raise ValueError(f"{' and '.join(names)} both say which classes are for the test; give one of them")
        return self

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
        None,
        description="initial weights: 'package', 'timm', 'torchvision', or the path of a file; 'none', the default, "
        "for random ones",
    )
    start: str | None = Field(
        None, description="folder of a finished run with whose network, backbone and head, this one starts"
    )
    pooling: str | None = Field(
        None,
        description="pooling of the last maps, a name of `equimetric.backbones.POOLINGS`; 'none', the default, for the "
        "backbone's own",
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
        description="embedding dimension; default: 512 on frozen features, 256 to fine-tune, 64 from scratch, or what "
        "the data allow",
    )
    head: str = Field("linear", description="'linear', or 'layer_norm' as for normalised softmax")
    head_init: Literal["random", "pca"] = Field(
        "random", description="initial head: random, or the principal components of the training features"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout in the head")

    @property
    def starts_by_pca(self) -> bool:
        """Whether the head starts at principal components; that of another run starts as it is."""
        return self.head_init == "pca" and self.start is None

    @field_validator("pretrained", "pooling", mode="after")
    @classmethod
    def _none_is_nothing(cls, value: str | None) -> str | None:
        # A study leaves out what its protocol gives; TOML has no null.
        return None if value == "none" else value

    @model_validator(mode="after")
    def _frozen_leaves_nothing_to_freeze(self) -> ModelConfig:
        if self.frozen and self.freeze:
            raise ValueError("frozen trains the head alone, so there is nothing left for freeze; give one of them")
        return self


class BatchConfig(Strict):
    """The images that a step compares: C classes with M samples each."""

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


class TrainingConfig(Strict):
    """The training budget, and how it is computed."""

    steps: int = Field(STEPS, ge=1, description="optimiser steps, at most")
    validate_every: int = Field(100, ge=1, description="steps between validations")
    checkpoint_seconds: float = Field(
        10.0,
        ge=0,
        description="a validation also saves a checkpoint when the last one, or the start, is at least this many "
        "seconds back; a killed run repeats no more than these and the steps up to a validation; 0 saves at each",
    )
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
    """Destinations of metrics besides metrics.jsonl; no influence on results."""

    tensorboard: bool = Field(False, description="write TensorBoard events into the run's folder")
    mlflow: str | None = Field(
        None, description="an MLflow experiment to log to; the server is taken from MLFLOW_TRACKING_URI"
    )


class LearnerConfig(Strict):
    """The learner, which forms embeddings and trains them."""

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

    method: str = Field(
        "multi_similarity",
        description="one of `equimetric methods`, a sum such as 'margin+tcm', or a loss of your own, 'my_losses:gap'",
    )
    options: Options = Field(default_factory=dict, description="options of the method")
    learner: LearnerConfig = Field(default_factory=LearnerConfig)
    seed: int = Field(0, ge=0, description="seed of everything random")
    plugins: list[str] = Field(
        default=[],
        description="files, beside this one, or modules with components of your own: plugins = ['my_losses.py']",
    )
    refit: RefitConfig | None = Field(
        None, description="makes a final model of a finished run; written by `equimetric train RUN --final training`"
    )

    @property
    def steps(self) -> int:
        """Optimiser steps, at most: the budget, or for a final model the best step of its source."""
        return min(self.training.steps, self.refit.steps) if self.refit else self.training.steps
