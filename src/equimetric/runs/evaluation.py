"""Embeddings of a part of a run's data, and their scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equimetric.backbones import Backbone
from equimetric.data import ImageCondition, parse_condition
from equimetric.data.attributes import attribute_ids, find_attribute
from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation import Cohort, Evaluation, evaluate
from equimetric.evaluation.cohort import CohortForm
from equimetric.learners import Learner
from equimetric.processes import SINGLE, Processes
from equimetric.runs.cohorts import RunCohorts, configured_setting, count_classes
from equimetric.runs.configuration import EvaluationConfig, RunConfig
from equimetric.runs.cross_modal import pair_members, require_paired
from equimetric.runs.data import RunData, load_run_data
from equimetric.runs.embedding import embed_images, embed_members
from equimetric.runs.evaluation_config import PARTS, Relevance
from equimetric.runs.features import cached_features
from equimetric.runs.folder import RunFolder
from equimetric.runs.model import TrainedModel, load_run
from equimetric.runs.result import CohortSetting
from equimetric.runs.run_cache import RunCache
from equimetric.threads import use_threads

__all__ = [
    "NEIGHBOURS",
    "CohortOverride",
    "LabelledEmbeddings",
    "OpenRun",
    "embed_part",
    "embed_run",
    "evaluate_defined",
    "evaluate_part",
    "evaluation_data",
    "find_setting",
    "open_run",
    "per_query_arrays",
    "within_parents",
]

NEIGHBOURS = 10
"""Nearest neighbours kept for each test query."""


@dataclass(frozen=True, eq=False)
class LabelledEmbeddings:
    """Embeddings of one part of the data, with what `evaluate` needs.

    Attributes:
        embeddings: (M, D) of the part's rows, ascending.
        labels: (M,) class ids of the data set.
        rows: (M,) rows of the data set.
        query, gallery: positions among the M, where queries are searched for in a gallery; None elsewhere.
        class_names: names by class id.
        cohort: other classes that similarities are normalised by, where configured.
        parents: (M,) superclasses, where items are compared within these alone.
        classes: (M,) class ids, where the labels are others.
    """

    embeddings: Tensor
    labels: Tensor
    rows: Tensor
    query: Tensor | None
    gallery: Tensor | None
    class_names: tuple[str, ...]
    cohort: Cohort | None = None
    parents: Tensor | None = None
    classes: Tensor | None = None

    def plain(self) -> LabelledEmbeddings:
        """The same by plain cosines, as scores of the same kind, where a cohort normalises them."""
        return self if self.cohort is None else replace(self, cohort=replace(self.cohort, strength=0.0))

    def select(self, keep: Tensor) -> LabelledEmbeddings:
        """The embeddings at these ascending positions."""

        def remap(positions: Tensor | None) -> Tensor | None:
            if positions is None:
                return None
            return torch.searchsorted(keep, positions[torch.isin(positions, keep)])

        return replace(
            self,
            embeddings=self.embeddings[keep],
            labels=self.labels[keep],
            rows=self.rows[keep],
            query=remap(self.query),
            gallery=remap(self.gallery),
            parents=None if self.parents is None else self.parents[keep],
            classes=None if self.classes is None else self.classes[keep],
        )

    def arrays(self) -> dict[str, Any]:
        """The embeddings and labels as `evaluate(**arrays)` takes them, gallery, cohort and parents included."""
        options: dict[str, Any] = {} if self.cohort is None else {"cohort": self.cohort}
        if self.parents is not None:
            options["parents"] = self.parents if self.query is None else self.parents[self.query]
        if self.query is None or self.gallery is None:
            return {"embeddings": self.embeddings, "labels": self.labels, **options}
        if self.parents is not None:
            options["gallery_parents"] = self.parents[self.gallery]
        return {
            **options,
            "embeddings": self.embeddings[self.query],
            "labels": self.labels[self.query],
            "gallery_embeddings": self.embeddings[self.gallery],
            "gallery_labels": self.labels[self.gallery],
        }


def evaluation_data(
    config: RunConfig, learner: Learner, data: RunData, processes: Processes = SINGLE, cache: RunCache | None = None
) -> RunData:
    """The data as they are evaluated: the cached features where the backbone is frozen, else the test view."""
    backbone = backbone_of_features(config, learner, data)
    return data if backbone is None else (cache or RunCache()).with_features(data, backbone, processes)


def backbone_of_features(config: RunConfig, learner: Learner, data: RunData) -> Backbone | None:
    """The frozen backbone whose features are evaluated in place of images; None where images are."""
    return learner.frozen_backbone() if config.model.frozen and not data.vectors else None


def embed_part(
    learner: Learner,
    data: RunData,
    part: str,
    processes: Processes = SINGLE,
    *,
    cohort: Cohort | None = None,
    across: Relevance | None = None,
) -> LabelledEmbeddings:
    """The embeddings of one part of evaluation data: train, validation or test; with the cohort that is given.

    With `across` they are those of two modalities, each to be searched for by the other.
    """
    rows, split = data.rows(part), data.split
    if across is not None:
        require_paired(learner)
        pairs = pair_members(learner, data, part, embed_members(learner, data.images(part), processes=processes))
        return LabelledEmbeddings(**pairs.both_directions(across), class_names=data.dataset.class_names)
    embeddings = embed_images(learner, data.images(part), processes=processes)
    query, gallery = (split.query, split.gallery) if part == "test" else (None, None)
    return LabelledEmbeddings(
        embeddings=embeddings,
        labels=data.dataset.labels[rows],
        rows=rows,
        query=None if query is None else torch.searchsorted(rows, query),
        gallery=None if gallery is None else torch.searchsorted(rows, gallery),
        class_names=data.dataset.class_names,
        cohort=cohort,
    )


def within_parents(
    embedded: LabelledEmbeddings, data: RunData, parents: str | None, option: str = "evaluation.parents"
) -> LabelledEmbeddings:
    """The same embeddings, compared only within the values of an attribute, where one is given."""
    if parents is None:
        return embedded
    return replace(embedded, parents=find_attribute(attribute_ids(data.dataset), parents, option)[embedded.rows])


def evaluate_part(embedded: LabelledEmbeddings, config: EvaluationConfig, *, neighbours: int = 0) -> Evaluation:
    """The configured metrics of labelled embeddings; queries are searched for in their gallery where there is one."""
    return evaluate(**embedded.arrays(), metrics=config.names(), geometry=config.compared_by(), neighbours=neighbours)


def evaluate_defined(
    embedded: LabelledEmbeddings, config: EvaluationConfig, *, neighbours: int = 0
) -> tuple[Evaluation, dict[str, str]]:
    """The configured metrics, NaN where these embeddings leave one undefined, and {name: reason} for these.

    Collapsed embeddings have no calibration range, for example. Where no metric is defined, an error is raised.
    """
    try:
        return evaluate_part(embedded, config, neighbours=neighbours), {}
    except EquimetricError as error:
        reasons = {name: reason for name in config.names() if (reason := undefined_reason(embedded, config, name))}
        defined = [name for name in config.names() if name not in reasons]
        if not reasons or not defined:
            raise error from None
    scores = evaluate(**embedded.arrays(), metrics=defined, geometry=config.compared_by(), neighbours=neighbours)
    return replace(scores, scores={name: scores.get(name, nan) for name in config.names()}), reasons


def undefined_reason(embedded: LabelledEmbeddings, config: EvaluationConfig, metric: str) -> str:
    """The reason why a metric cannot be computed for embeddings; '' where it can."""
    try:
        evaluate(**embedded.arrays(), metrics=[metric], geometry=config.compared_by())
    except EquimetricError as error:
        return str(error)
    return ""


def per_query_arrays(scores: Evaluation, embedded: LabelledEmbeddings) -> dict[str, np.ndarray[Any, Any]]:
    """Per query its row, label, scores and nearest neighbours, as rows of the data set; −1 where one is missing."""
    queries = embedded.rows if embedded.query is None else embedded.rows[embedded.query]
    gallery = embedded.rows if embedded.gallery is None else embedded.rows[embedded.gallery]
    classes = embedded.labels if embedded.classes is None else embedded.classes
    labels = classes if embedded.query is None else classes[embedded.query]
    assert scores.neighbours is not None
    # Within parents a query may have fewer neighbours.
    neighbours = torch.where(scores.neighbours < 0, -1, gallery[scores.neighbours])
    return {
        "index": queries.numpy(),
        "labels": labels.numpy(),
        "neighbours": neighbours.numpy(),
        **{name: values.numpy() for name, values in scores.per_query.items()},
    }


@dataclass(frozen=True)
class CohortOverride:
    """A cohort in place of the one of a run: a part of its classes, or "none"; the rest is the run's, or the default.

    Attributes:
        part: train, validation, both or none; None for that of the run.
        strength, form: options of `Cohort`.
    """

    part: str | None = None
    strength: float | None = None
    form: CohortForm | None = None


def embed_run(
    folder: str | Path,
    part: str = "test",
    *,
    parents: str | None = None,
    cohort: CohortOverride | None = None,
    condition: str | None = None,
) -> tuple[RunConfig, LabelledEmbeddings]:
    """The embeddings behind the metrics of a finished run: see `OpenRun.embed`."""
    run = open_run(folder)
    return run.config, run.embed(part, parents=parents, cohort=cohort, condition=condition)


@dataclass(frozen=True, eq=False)
class OpenRun:
    """A finished run with its data, to embed several parts of them."""

    model: TrainedModel
    data: RunData

    @property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return self.model.config

    @cached_property
    def eval_data(self) -> RunData:
        """The data as they are evaluated: the cached features where the backbone is frozen, else the test view."""
        with use_threads(self.config.training.threads):
            return evaluation_data(self.config, self.model.learner, self.data)

    def embed(
        self,
        part: str = "test",
        *,
        parents: str | None = None,
        cohort: CohortOverride | None = None,
        condition: str | None = None,
    ) -> LabelledEmbeddings:
        """The embeddings of a part by the model, view, features, split, threads and cohort of the run.

        `parents` names an attribute of the data, within whose values they are to be compared. A cohort is that of the
        run for its test classes, and only the one that is given for others. A `condition`, such as "blur:2", changes
        the images of the part, and none of a cohort.
        """
        if self.config.refit is not None:
            self.config.refit.require_unseen(part)
        with use_threads(self.config.training.threads):
            data = self.eval_data if condition is None else self.with_condition(parse_condition(condition), part)
            setting = find_setting(self.model, data, part, cohort or CohortOverride())
            # Test classes are in no cohort, so no labels are needed to exclude rows.
            cohorts, labelled = RunCohorts(self.model.learner, data), part != "test"
            run_cohort = None if setting is None else cohorts.cohort(setting, labelled=labelled)
            across = self.config.evaluation.across
            embedded = embed_part(self.model.learner, data, part, cohort=run_cohort, across=across)
        if parents is not None:
            return within_parents(embedded, self.data, parents, "--parents")
        return within_parents(embedded, self.data, self.config.evaluation.parents)

    def with_condition(self, condition: ImageCondition, part: str) -> RunData:
        """The data as they are evaluated, the images of one part under a condition; features are computed again."""
        conditioned = self.data.eval_data.subset(self.data.rows(part)).with_condition(condition)
        backbone = backbone_of_features(self.config, self.model.learner, self.data)
        images = conditioned.images if backbone is None else cached_features(backbone, conditioned)
        return self.eval_data.with_images(part, images)


def open_run(folder: str | Path) -> OpenRun:
    """A finished run and its data, which must be those that it was trained and tested on."""
    model = load_run(folder)
    with use_threads(model.config.training.threads):
        data = load_run_data(model.config.data, model.config.refit)
    require_same_data(RunFolder(model.folder), data)
    return OpenRun(model, data)


def find_setting(model: TrainedModel, data: RunData, part: str, override: CohortOverride) -> CohortSetting | None:
    """The cohort that normalises a part: that of the run with the overrides; None without one."""
    config = model.config.evaluation.cohort
    overridden = override.part is not None or override.strength is not None or override.form is not None
    if override.part == "none" or (config is None and not overridden) or (part != "test" and not overridden):
        return None
    stored = model.result.cohort
    if stored is None and config is not None and not (config.is_chosen and override.part is not None):
        stored = configured_setting(config, data)
    values = {} if stored is None else stored.model_dump(include={"part", "form", "strength", "nearest"})
    overrides = {"part": override.part, "strength": override.strength, "form": override.form}
    values = {"part": "train", **values, **{name: value for name, value in overrides.items() if value is not None}}
    if values["part"] not in PARTS:
        raise unknown_name("cohort of a run", str(values["part"]), [*PARTS, "none"])
    return CohortSetting.model_validate({**values, "classes": count_classes(data, values["part"])})


def require_same_data(run: RunFolder, data: RunData) -> None:
    """Raise an error where the data are not those that the run was trained and tested on."""
    environment = run.environment() or {}
    # Older versions had another fingerprint.
    if "key" in environment and environment["data_fingerprint"] != data.fingerprint:
        raise EquimetricError(
            f"the data of {str(run.path)!r} have changed since it was trained, so new figures "
            "could not be compared with its own; restore them, or embed the new ones with equimetric.load(…).embed"
        )
