"""The plan of a fit: the classes of every part, the candidates, and how they are chosen."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equimetric.backbones import BACKBONES
from equimetric.configuration import load_config
from equimetric.dotted import set_dotted
from equimetric.evaluation.cohort_choice import DEFAULT_STRENGTH
from equimetric.fitting.class_split import ClassParts, choose_far, divide_classes
from equimetric.fitting.inspection import Inspection, inspect_data, read_source
from equimetric.runs.configuration import RunConfig
from equimetric.runs.image_size import fit_images
from equimetric.runs.regimes import MAX_DEFAULT_DIM

__all__ = ["BACKBONE", "METHODS", "UNTRAINED", "Candidate", "Plan", "make_plan", "variations"]

METHODS = ("multi_similarity_miner", "arcface", "contrastive", "proxy_anchor")
"""Base objectives: pairs with a miner, class weights with a margin, the oldest, proxies."""

MAX_RECALL_LOSS = 0.005
"""Recall@1 that a candidate may lose to raw features on validation classes."""

FOLDS = 3
"""Divisions of training and validation classes that a trial is the mean of."""

BACKBONE = "efficientnet_lite0"
"""Its weights are in a package, so nothing is downloaded."""

MIN_DIM, MAX_DIM = 32, 512
"""Dimensions of a candidate: beyond these, search costs more than the embedding gains."""

LEARNERS_WITHOUT_STEPS = {"raw_features": "raw features", "untrained": "principal components"}
"""The features as they are, and the start of the head; learner → title."""


@dataclass(frozen=True)
class Candidate:
    """One way to train: a method, and keys of the configuration that differ from the plan."""

    method: str
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """'arcface, optimizer.lr = 0.003'."""
        title = LEARNERS_WITHOUT_STEPS.get(self.method, self.method)
        return ", ".join([title, *(f"{key} = {value:g}" for key, value in self.changes)])

    @property
    def trains(self) -> bool:
        """Whether it takes any step."""
        return self.method not in LEARNERS_WITHOUT_STEPS


UNTRAINED = tuple(map(Candidate, LEARNERS_WITHOUT_STEPS))
"""Candidates that every trained one must beat on validation classes."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of a fit.

    Attributes:
        inspection: the data.
        parts: the classes of every part.
        far: the false accept rate to calibrate for.
        values: the configuration of a run, without method, and without lists of classes.
        candidates: the candidates that are trained first.
        notes: sentences on merged parts and what cannot be promised.
    """

    inspection: Inspection
    parts: ClassParts
    far: float
    values: Mapping[str, Any]
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...]

    @property
    def chosen_by(self) -> tuple[str, str]:
        """The validation metrics whose mean chooses a candidate: one of search, one of the threshold."""
        return "map@r", f"tar@far={self.far:g}"

    def run_values(self, candidate: Candidate, fold: int = 0) -> dict[str, Any]:
        """The configuration of a run, as a user would write it."""
        values = {"method": candidate.method, **copy.deepcopy(dict(self.values))}
        if not candidate.trains:
            values["learner"] = {"name": candidate.method}
        for key, value in candidate.changes:
            set_dotted(values, key, value)
        lists = self.parts.fold(fold, FOLDS).lists()
        return {**values, "data": {**values["data"], "parts": lists}}

    def run_config(self, candidate: Candidate, fold: int = 0) -> RunConfig:
        """The configuration of a run, checked."""
        return fit_images(load_config(self.run_values(candidate, fold), RunConfig))

    def largest_dim(self, fold: int) -> int:
        """Dimensions of a candidate, no more than there are principal components of a fold's training features."""
        images = sum(self.inspection.images[name] for name in self.parts.fold(fold, FOLDS).train)
        return min(MAX_DIM, BACKBONES[self.values["model"]["backbone"]].num_features, images - 1)

    def describe(self) -> Iterator[str]:
        """The plan in words, one line for each stage."""
        model, lists = self.values["model"], self.parts.fold().lists()
        weights = "pretrained" if model.get("pretrained") else "not pretrained"
        yield f"backbone {model['backbone']}, {weights}, frozen: its features are computed once"
        yield "head: linear, started at the principal components of the training features"
        sizes = ", ".join(f"{len(names)} {part}" for part, names in lists.items())
        yield f"classes: {sizes}, none in two parts"
        yield (
            f"objective: {', '.join(candidate.method for candidate in self.candidates)}; the one with the best mean of "
            f"MAP@R and TAR at FAR {self.far:g} on validation classes of {FOLDS} folds, then its learning rate and "
            "dimension"
        )
        yield (
            f"{' and '.join(candidate.name for candidate in UNTRAINED)}, without training, are compared in the same "
            "way: raw features are exported where no other gains more than one standard error of the folds on them, or "
            f"where all that do lose more than {MAX_RECALL_LOSS:.1%} of Recall@1"
        )
        yield (
            f"cohort normalisation by the training classes (mean form, strength {DEFAULT_STRENGTH:g}), or "
            f"another strength, the full form or none that raises TAR at FAR {self.far:g} on validation classes by "
            "more than one standard error over classes"
        )
        yield f"threshold for FAR {self.far:g}, calibrated on the {self.parts.calibration} classes"
        yield "test classes opened once, at the end"
        yield from self.notes


def variations(best: Candidate, plan: Plan) -> Iterator[Candidate]:
    """Neighbours of a candidate: a larger and a smaller learning rate, dimensions beside its own."""
    config, changes = plan.run_config(best), dict(best.changes)
    max_dim = min(plan.largest_dim(fold) for fold in range(FOLDS))
    dim = config.model.dim or min(MAX_DEFAULT_DIM["frozen features"], max_dim)
    steps: list[tuple[str, float]] = [
        ("optimizer.lr", float(f"{config.optimizer.lr * factor:.1g}")) for factor in (3.0, 1 / 3)
    ]
    steps += [("model.dim", new_dim) for new_dim in (dim // 2, 2 * dim) if MIN_DIM <= new_dim <= max_dim]
    for key, value in steps:
        yield Candidate(best.method, tuple({**changes, key: value}.items()))


def make_plan(
    source: str | Path,
    *,
    far: float | None = None,
    seed: int = 0,
    backbone: str = BACKBONE,
    path: str | None = None,
    label: str | None = None,
) -> Plan:
    """Inspect the data and make the plan.

    far          the false accept rate to calibrate for; by default 1e-2, or the smallest that the images allow
    backbone     a backbone whose weights come as a package, or one without pretrained weights
    path, label  columns of a list of images
    """
    values = plan_values(read_source(Path(source).expanduser().absolute(), path=path, label=label), backbone, seed)
    fitted = fit_images(load_config(values, RunConfig))
    inspection = inspect_data(fitted.data, fitted.model)
    parts = divide_classes(inspection.classes_together(), seed)
    calibration_classes = parts.fold().lists()[parts.calibration]
    rate, note = choose_far(inspection.images, calibration_classes, far)
    values["evaluation"] = {
        "metrics": ["recall@1", "map@r", f"tar@far={rate:g}", "opis_far"],
        "selected_by": "map@r",
        "cohort": {"part": "train", "strength": "auto", "form": "auto", "far": rate},
    }
    notes = (*parts.merge_notes, *([note] if note else []))
    return Plan(inspection, parts, rate, values, tuple(map(Candidate, METHODS)), notes)


def plan_values(data: Mapping[str, Any], backbone: str, seed: int) -> dict[str, Any]:
    """The configuration that all runs of a fit have in common."""
    record = BACKBONES.find(backbone)
    packaged = {"pretrained": "package"} if record.package is not None else {}
    return {
        "seed": seed,
        "data": {**data, "transform": "imagenet" if packaged else "affine"},
        "model": {"backbone": backbone, **packaged, "frozen": True, "head_init": "pca"},
        "training": {"patience": 300},
    }
