"""The checklist of the ledger: what a fair comparison keeps equal, and what it must never do.

The first six factors are the causes of unfair comparisons that Musgrave, Belongie and Lim name in "A metric learning
reality check" (2020): other architectures, dimensions, augmentations and optimisers, batch normalisation frozen by some
only, and figures without intervals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from equimetric.errors import unknown_name

__all__ = [
    "CAUSE_COUNT",
    "FACTORS",
    "METHOD_KEYS",
    "Factor",
    "FactorName",
    "check_varies",
    "find_factor",
    "is_declared",
]

FactorName: TypeAlias = Literal[
    "architecture",
    "dimension",
    "augmentation",
    "optimizer",
    "batch_norm",
    "intervals",
    "data",
    "batch",
    "normalization",
    "evaluation",
    "budget",
    "tuning",
    "computation",
    "selection",
    "classes",
    "near_duplicates",
]

CAUSE_COUNT = 6
"""Number of factors that are causes of the Reality Check."""

METHOD_KEYS = ("method", "options", "learner", "optimizer.objective_lr")
"""Keys of a run that differ between the methods of every study."""


@dataclass(frozen=True)
class Factor:
    """One line of the checklist.

    Attributes:
        name: as in `varies` and `[waivers]`.
        noun: what is compared or required.
        fault: name of a violation; by default the noun.
        remedy: what to do about a violation.
        keys: dotted keys of a run's configuration, or tables of them; the longest that fits decides.
        fields: keys of a described method, which must be stated.
        optional: further ones, which need not be stated where no method does.
        summary_keys: keys and fields shown where all are equal.
        cause: number among the causes of the Reality Check.
        blocks_start: whether a study with this fault does not start.
    """

    name: FactorName
    noun: str
    remedy: str
    fault: str = ""
    keys: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    summary_keys: tuple[str, ...] = ()
    cause: int | None = None
    blocks_start: bool = True

    @property
    def wrong(self) -> str:
        """The fault in a list of faults."""
        return self.fault or self.noun


_CHECKLIST = (
    Factor(
        "architecture",
        noun="architecture",
        remedy="train every method on one backbone with the same initial weights and head",
        keys=("model",),
        fields=("backbone", "pretrained"),
        optional=("networks",),
        summary_keys=("model.backbone", "model.pretrained", "backbone", "pretrained"),
        cause=1,
    ),
    Factor(
        "dimension",
        noun="embedding dimension",
        remedy="give every method the same embedding dimension, or as many bits",
        keys=("model.dim", "evaluation.binarise"),
        fields=("dim", "bits"),
        cause=2,
    ),
    Factor(
        "augmentation",
        noun="augmentation",
        remedy="give every method the same crops, image size and augmentation, all with or all without bounding boxes",
        keys=("data.transform", "data.options.size", "data.options.crop_to_box", "data.options.decoding"),
        fields=("transform",),
        optional=("image_size", "bounding_boxes"),
        summary_keys=("data.transform", "transform"),
        cause=3,
    ),
    Factor(
        "optimizer",
        noun="optimiser",
        remedy="update every network by one rule, with learning rates that are equal or tuned by the same budget",
        keys=("optimizer", "training.ema"),
        fields=("optimizer",),
        optional=("lr",),
        summary_keys=("optimizer.name", "optimizer.lr", "optimizer", "lr"),
        cause=4,
    ),
    Factor(
        "batch_norm",
        noun="batch normalisation",
        remedy="freeze batch normalisation for all methods or for none",
        keys=("model.frozen_batch_norm",),
        fields=("frozen_batch_norm",),
        summary_keys=("model.frozen_batch_norm", "frozen_batch_norm"),
        cause=5,
    ),
    Factor(
        "intervals",
        noun="intervals",
        fault="missing intervals",
        remedy="repeat every method with several seeds and report intervals",
        cause=6,
        blocks_start=False,
    ),
    Factor(
        "data",
        noun="data",
        remedy="train and test every method on the same images, split in the same way",
        keys=("data",),
        fields=("data",),
        summary_keys=("data.name", "data"),
    ),
    Factor(
        "batch",
        noun="batch",
        remedy="draw batches of one shape for every method, or declare where the protocol has a shape per method",
        keys=("batch",),
        fields=("batch_size",),
        optional=("batch_shape",),
        summary_keys=("batch.kind", "batch.classes", "batch.samples", "batch_size", "batch_shape"),
    ),
    Factor(
        "normalization",
        noun="normalisation",
        remedy="compare all embeddings in one geometry, all of unit length or none",
        keys=("evaluation.geometry",),
        fields=("normalized",),
        optional=("geometry",),
        summary_keys=("evaluation.geometry", "normalized", "geometry"),
    ),
    Factor(
        "evaluation",
        noun="evaluation",
        remedy="measure every method by the same metrics, cohort and gallery",
        keys=("evaluation",),
        summary_keys=("evaluation.selected_by",),
    ),
    Factor(
        "budget",
        noun="training budget",
        remedy="give every method the same steps, validations and patience",
        keys=("training",),
        fields=("budget",),
        summary_keys=("training.steps", "training.validate_every", "training.patience", "budget"),
    ),
    Factor(
        "tuning",
        noun="tuning budget",
        remedy="tune every method with the same number of trials",
        fields=("trials",),
        summary_keys=("trials",),
    ),
    Factor(
        "computation",
        noun="computation",
        remedy="compute every method on one device with one precision",
        keys=(
            "training.threads",
            "training.device",
            "training.precision",
            "training.channels_last",
            "training.compile",
            "training.log_every",
        ),
        summary_keys=("training.device", "training.precision"),
    ),
    Factor(
        "selection",
        noun="selection",
        fault="test feedback",
        remedy="choose epochs, hyper-parameters and cohorts on validation classes, and open the test classes once",
    ),
    Factor(
        "classes",
        noun="disjoint classes",
        fault="shared classes",
        remedy="put every class into one of the training, validation and test parts",
    ),
    Factor(
        "near_duplicates",
        noun="near-duplicates",
        remedy="remove the images from all parts but one; `equimetric datasets check` lists them",
    ),
)

FACTORS: dict[str, Factor] = {factor.name: factor for factor in _CHECKLIST}
"""Name → line of the checklist, in its order."""

_FACTOR_BY_KEY = {key: factor for factor in _CHECKLIST for key in factor.keys}


def find_factor(key: str) -> Factor:
    """The factor that a dotted key of a configuration belongs to: that of the longest table or key it starts with."""
    names = key.split(".")
    for depth in range(len(names), 0, -1):
        factor = _FACTOR_BY_KEY.get(".".join(names[:depth]))
        if factor is not None:
            return factor
    raise unknown_name("condition of a run", key, _FACTOR_BY_KEY)


def is_declared(key: str, factor: Factor, varies: Iterable[str]) -> bool:
    """Whether `varies` names the key, a table that holds it, or its factor."""
    return any(name in (key, factor.name) or key.startswith(f"{name}.") for name in varies)


def check_varies(varies: Iterable[str]) -> None:
    """Raise an error for a name that is neither a factor nor a key or field of one."""
    fields = [field for factor in _CHECKLIST for field in (*factor.fields, *factor.optional)]
    tables = {key.partition(".")[0] for key in (*_FACTOR_BY_KEY, *METHOD_KEYS)}
    for name in varies:
        if name not in FACTORS and name not in fields and name.partition(".")[0] not in tables:
            raise unknown_name("name in varies", name, [*FACTORS, *fields, *sorted(tables)])
