"""A study in words: its conditions, its limits, and the metrics of its table."""

from __future__ import annotations

from collections.abc import Sequence

from equimetric.data import Dataset
from equimetric.runs.configuration import Conditions, EvaluationConfig, LearnerConfig
from equimetric.runs.key import RunKey
from equimetric.studies.configuration import StudyConfig
from equimetric.studies.records import PLAIN

__all__ = ["choose_table_metrics", "conditions", "describe_conditions", "statement"]

DEFAULT_METRICS = ("map@r", "r_precision", "recall@1")
"""Columns of the table, where runs report them; result.json has all metrics."""

DEVIATIONS = {
    ("crop_to_box", True): "images are cropped to bounding boxes; the zero-shot protocol uses whole images",
    ("decoding", "fast"): "large JPEGs are decoded at a fraction of their size",
}
"""Data option and value → what a reader must know when comparing with published figures."""


def choose_table_metrics(study: Conditions) -> tuple[str, ...]:
    """The metric that selects weights, then the default columns, or all metrics of a list that the user gave.

    With a cohort, each is followed by the same without it.
    """
    names = study.evaluation.names()
    is_default = study.evaluation.ks is None and study.evaluation.metrics == EvaluationConfig().metrics
    chosen = [name for name in DEFAULT_METRICS if name in names] if is_default else names
    columns = dict.fromkeys([study.evaluation.selected_by, *chosen])
    if study.evaluation.cohort is None:
        return tuple(columns)
    return tuple(column for name in columns for column in (name, name + PLAIN))


def statement(study: StudyConfig, ended: Sequence[RunKey]) -> tuple[str, ...]:
    """The equal conditions, and what the comparison shows and does not show."""
    varied = ", ".join(study.varies)
    sentences = [
        "All methods have the same network, embedding dimension, images, augmentation, batches, optimiser, schedule "
        f"and budget of {study.training.steps} steps"
        + (f", but for what the study declares to vary ({varied})" if varied else "")
        + ", and for each seed the same initial network; only the method differs.",
        *describe_search(study),
        "All figures are measured on classes that are not in the training set. The evaluated weights are those with "
        f"the best {study.evaluation.selected_by} on validation classes, which are neither training nor test classes; "
        "the test classes were used once for each final run, and never to choose anything.",
        describe_repetitions(study),
        describe_limits(study),
    ]
    planned = {(row, seed) for row in study.methods for seed in study.seeds}
    missing = planned - {(key.method, key.seed) for key in ended}
    if missing:
        sentences.append(f"Incomplete: {len(missing)} of {len(planned)} repetitions have no result yet.")
    return tuple(sentences)


def describe_search(study: StudyConfig) -> list[str]:
    """The tuning of methods; empty without a search."""
    if study.search is None:
        return []
    kinds = {"bayesian": "a Bayesian search", "random": "a quasi-random search", "grid": "a grid search"}
    folds = f"the mean over {study.data.folds} folds of " if study.cross_validation else ""
    return [
        f"Every method was tuned by {kinds[study.search.kind]} of {study.search.trials} trials, by {folds}its best "
        f"{study.evaluation.selected_by} on validation classes."
    ]


def describe_repetitions(study: StudyConfig) -> str:
    """The repetitions, and what the intervals cover."""
    planned = len(study.seeds)
    if planned == 1:
        return "With one seed there are no intervals: the spread over seeds is unknown."
    models = f", each of {study.data.folds} fold models," if study.cross_validation else ""
    target = (
        "new seeds and new classes of the same kind"
        if study.statistics.estimand == "seeds and classes"
        else "new seeds"
    )
    return (
        f"Every method was trained with {planned} seeds{models} and ± is the half width of the "
        f"{100 * study.statistics.confidence:g} % interval for {target}."
    )


def describe_limits(study: StudyConfig) -> str:
    """The limits of the comparison."""
    if study.search is None:
        return (
            "The study shows what each method reaches with these options and this budget, on these images. It does not "
            "show what tuning or longer training would give: the order of methods changes with the budget."
        )
    return (
        "The study shows what each method reaches with options tuned in these ranges and with this budget, on these "
        "images and with this network. Other data, networks and budgets may give another order."
    )


def describe_conditions(study: Conditions, dataset: Dataset | None) -> dict[str, str]:
    """The conditions of a study or a run by name, in words."""
    data, batch, optimizer, training = study.data, study.batch, study.optimizer, study.training
    facts = {
        "Images": data.name + "".join(f", {key} {value}" for key, value in data.options.items()),
        "Split": data.describe_split(),
        "Transform": data.transform,
        "Network": study.model.backbone
        + (f", weights from {study.model.pretrained}" if study.model.pretrained else "")
        + (", frozen" if study.model.frozen else "")
        + f", {study.model.dim}-dimensional embedding"
        + (" of unit length" if study.evaluation.unit_length() else ""),
        "Batch": f"{batch.kind}, {batch.classes} × {batch.samples} images"
        + "".join(f", {key} {value}" for key, value in batch.options.items()),
        "Optimiser": f"{optimizer.name}, learning rate {optimizer.lr:g} ({optimizer.schedule}), "
        f"weight decay {optimizer.weight_decay:g}",
        "Objective's own parameters": f"{optimizer.objective_name or optimizer.name}, "
        f"learning rate {optimizer.objective_lr:g}, "
        f"weight decay {optimizer.objective_weight_decay:g}",
        "Evaluation": f"{study.evaluation.compared_by()} geometry"
        + (f", {study.evaluation.cohort.describe()}" if study.evaluation.cohort else "")
        + (f", within each {study.evaluation.parents}" if study.evaluation.parents else "")
        + (f", same {study.evaluation.across} across modalities" if study.evaluation.across else "")
        + f", best weights by {study.evaluation.selected_by}",
        "Budget": f"{training.steps} steps, validation every {training.validate_every}",
    }
    deviations = [text for (option, value), text in DEVIATIONS.items() if data.options.get(option) == value]
    if deviations:
        facts["Departs from the literature's protocol"] = "; ".join(deviations)
    if dataset is not None:
        facts["Images"] += f": {len(dataset):,} images of {dataset.classes:,} classes, {dataset.size}×{dataset.size}"
    return facts


def conditions(study: StudyConfig, dataset: Dataset | None) -> dict[str, str]:
    """The conditions that all methods share, and what each method has of its own."""
    facts = {**describe_conditions(study, dataset), "Seeds": ", ".join(map(str, study.seeds))}
    for row, method in study.methods.items():
        changes = [f"{key} = {value}" for key, value in method.options.items()]
        if method.objective_lr is not None:
            changes.append(f"learning rate of the objective's own parameters {method.objective_lr:g}")
        if method.learner != LearnerConfig():
            changes.append(f"learner {method.learner.name}")
            changes += [f"{key} = {value}" for key, value in method.learner.options.items()]
        if changes:
            facts[row] = ", ".join(changes)
    return facts
