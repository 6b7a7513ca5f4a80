"""A study in words: its conditions, its limits, and the metrics of its table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from equimetric.data import Dataset
from equimetric.dotted import flatten, set_dotted
from equimetric.runs.configuration import Conditions, EvaluationConfig, LearnerConfig
from equimetric.studies.configuration import StudyConfig
from equimetric.studies.records import PLAIN
from equimetric.studies.rows import RowSpec, list_rows, tuned_conditions

__all__ = ["choose_table_metrics", "describe_conditions", "describe_rows", "describe_study_conditions", "statement"]

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


def statement(study: StudyConfig) -> tuple[str, ...]:
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


def describe_conditions(
    study: Conditions, dataset: Dataset | None, tuned: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """The conditions of a study or a run by name, in words; `tuned` has the words for keys that a search chooses."""
    data, batch, optimizer, training = study.data, study.batch, study.optimizer, study.training

    def number(key: str) -> str:
        return tuned.get(f"optimizer.{key}", f"{getattr(optimizer, key):g}")

    facts = {
        "Images": data.name + "".join(f", {key} {value}" for key, value in data.options.items()),
        "Split": data.describe_split(None if dataset is None else "part" in dataset.sample_attributes),
        "Transform": data.transform,
        "Network": study.model.backbone
        + (f", weights from {study.model.pretrained}" if study.model.pretrained else "")
        + (", frozen" if study.model.frozen else "")
        + f", {study.model.dim}-dimensional embedding"
        + (" of unit length" if study.evaluation.unit_length() else ""),
        "Batch": f"{batch.kind}, {batch.classes} × {batch.samples} images"
        + "".join(f", {key} {value}" for key, value in batch.options.items()),
        "Optimiser": f"{optimizer.name}, learning rate {number('lr')} ({optimizer.schedule}), "
        f"weight decay {number('weight_decay')}",
        "Objective's own parameters": f"{optimizer.objective_name or optimizer.name}, "
        f"learning rate {number('objective_lr')}, "
        f"weight decay {number('objective_weight_decay')}",
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


OPTIMIZER_NUMBERS = tuple(
    f"optimizer.{key}" for key in ("lr", "weight_decay", "objective_lr", "objective_weight_decay")
)
"""Keys in whose place `describe_conditions` says that they are tuned."""

CONDITION_KEYS = {
    "Transform": ("data.transform",),
    "Network": ("model",),
    "Batch": ("batch",),
    "Optimiser": ("optimizer",),
    "Objective's own parameters": ("optimizer.objective",),
    "Evaluation": ("evaluation",),
    "Budget": ("training",),
}
"""Name of a condition → beginnings of its keys; the longest that fits decides."""


def describe_study_conditions(study: StudyConfig, dataset: Dataset | None) -> dict[str, str]:
    """The conditions of all methods; each says which of its keys are tuned, or differ between methods."""
    rows = [row for row in list_rows(study).values() if row.kind == "trained"]
    tuned = describe_tuned_keys(rows)
    shared, varied = split_row_conditions(study, rows, tuned)
    facts = {**describe_conditions(shared, dataset, tuned), "Seeds": ", ".join(map(str, study.seeds))}
    words = {key: text for key, text in tuned.items() if key not in OPTIMIZER_NUMBERS}
    words |= dict.fromkeys(varied, "not equal for all methods")
    names: dict[tuple[str, str], list[str]] = {}
    for key, text in words.items():
        names.setdefault((condition_name(key), text), []).append(key.partition(".")[2])
    for (name, text), parts in names.items():
        facts[name] = f"{facts.get(name, '')}; {text}: {', '.join(parts)}".removeprefix("; ")
    return facts


def describe_tuned_keys(rows: Sequence[RowSpec]) -> dict[str, str]:
    """Dotted key of a condition that a search tunes → whether it does so for all methods that have it."""

    def is_tuned_for_all(key: str) -> bool:
        # A method without parameters of its own has no learning rate for them.
        return key.startswith("optimizer.objective_") or all(key in row.space for row in rows)

    return {
        key: f"tuned for {'each method' if is_tuned_for_all(key) else 'some methods'}" for key in tuned_conditions(rows)
    }


def split_row_conditions(
    study: StudyConfig, rows: Sequence[RowSpec], tuned: Mapping[str, str]
) -> tuple[Conditions, list[str]]:
    """The conditions with what all rows set alike, and the keys whose values differ between rows."""
    values = study.conditions()
    defaults = dict(flatten(values))
    varied = []
    for key in dict.fromkeys(key for row in rows for key in row.conditions if key not in tuned):
        settings = [row.conditions.get(key, defaults.get(key)) for row in rows]
        if len({json.dumps(setting, sort_keys=True, default=str) for setting in settings}) > 1:
            varied.append(key)
        else:
            set_dotted(values, key, settings[0])
    return Conditions.model_validate(values), varied


def condition_name(key: str) -> str:
    """The name under which `describe_conditions` lists a dotted key; 'Other' where it lists it nowhere."""
    fits = [(len(start), name) for name, starts in CONDITION_KEYS.items() for start in starts if key.startswith(start)]
    return max(fits)[1] if fits else "Other"


def describe_rows(study: StudyConfig) -> dict[str, str]:
    """Row → what is set for it alone: options, learner and conditions; without rows that have nothing of their own.

    What a search chooses is listed with the search.
    """
    facts = {}
    for row in list_rows(study).values():
        if row.kind != "trained":
            continue
        settings = [f"{key} = {value}" for key, value in row.options.items() if key not in row.space]
        learner = LearnerConfig.model_validate(row.learner)
        if learner != LearnerConfig():
            settings.append(f"learner {learner.name}")
            settings += [f"{key} = {value}" for key, value in learner.options.items()]
        settings += [f"{key} = {value}" for key, value in row.conditions.items() if key not in row.space]
        if settings:
            facts[row.name] = ", ".join(settings)
    return facts
