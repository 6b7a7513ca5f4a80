"""Records that a report is made from: the folder of a study or of a run, or a file of embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from equimetric.configuration import to_toml
from equimetric.errors import EquimetricError
from equimetric.runs.folder import RunFolder
from equimetric.studies.embeddings_file import load_embeddings_record
from equimetric.studies.embeddings_record import EmbeddingsRecord
from equimetric.studies.gallery import galleries
from equimetric.studies.narrative import choose_table_metrics, describe_conditions
from equimetric.studies.outcomes import class_scores
from equimetric.studies.profiles import load_profiles, study_images
from equimetric.studies.records import PLAIN, RunRecord, StudyRecord
from equimetric.studies.store import count_test_accesses, find_images, is_study, load_study, read_environment

__all__ = ["load_embeddings_record", "load_record", "load_run_record"]


def load_record(
    source: Path,
    labels: Path | None = None,
    *,
    retrained_folder: Path | None = None,
    data_options: Mapping[str, Any] | None = None,
    pictures: bool = True,
) -> StudyRecord | EmbeddingsRecord:
    """The record behind a report: of a study, a run, or embeddings with their labels.

    `retrained_folder` and `data_options` are those of `load_study`; without `pictures` the record has
    no image of the data.
    """
    record = find_record(source, labels, retrained_folder, data_options)
    return record if pictures or isinstance(record, EmbeddingsRecord) else remove_images(record)


def find_record(
    source: Path, labels: Path | None, retrained_folder: Path | None, data_options: Mapping[str, Any] | None
) -> StudyRecord | EmbeddingsRecord:
    """The record of a study, a run or embeddings at a path."""
    if not is_study(source) and (retrained_folder or data_options):
        raise EquimetricError(f"{str(source)!r} is no study; only studies are trained again, or have their data moved")
    if not source.is_dir():
        return load_embeddings_record(source, labels)
    if labels is not None:
        raise EquimetricError(f"{str(source)!r} has its own labels; a file of labels goes only with an .npy file")
    if is_study(source):
        return load_study(source, retrained_folder=retrained_folder, data_options=data_options)
    if (source / "config.toml").exists():
        return load_run_record(source)
    raise EquimetricError(
        f"{str(source)!r} is neither a study nor a run; give a folder such as runs/demo, or a file of embeddings"
    )


def remove_images(record: StudyRecord) -> StudyRecord:
    """The record without images, which may not be published everywhere; class names stay."""
    images = record.images and replace(record.images, dataset=None)
    queries = record.queries and replace(record.queries, images=images)
    return replace(record, galleries={}, queries=queries, images=images)


def load_run_record(folder: Path) -> StudyRecord:
    """A run as a study of one method and one seed."""
    run = RunFolder(folder)
    config, result = run.config(), run.require_result()
    environment = run.environment() or {}
    dataset = find_images(config, environment.get("data_fingerprint", ""))
    names = () if dataset is None else dataset.class_names
    classes, per_class = class_scores(run.per_query(), names) if run.has_per_query() else (None, {})
    record = RunRecord(
        method=config.method,
        kind="baseline" if result.role == "baseline" else "trained",
        seed=config.seed,
        status=result.status,
        error=result.error,
        metrics={**result.metrics, **{name + PLAIN: value for name, value in result.plain.items()}},
        history=tuple(run.history()),
        seconds=result.seconds,
        memory=result.memory.model_dump(exclude_none=True) if result.memory else {},
        parameters=result.parameters,
        cost=result.cost.model_dump() if result.cost else {},
        members=tuple(member.model_dump() for member in result.members),
        diversity=result.diversity.model_dump() if result.diversity else {},
        notes=result.notes,
        per_class=per_class,
        classes=classes,
        code=environment.get("code", ""),
    )
    return StudyRecord(
        name=folder.name,
        title=f"{config.method}, seed {config.seed}",
        statement=(
            "One run of one method. All figures are measured on classes that are not in the training set; the weights "
            f"are those with the best {config.evaluation.selected_by} on validation classes. One run does not show how "
            "much the seed matters, nor how the method compares with others.",
        ),
        conditions=describe_conditions(config, dataset),
        runs=(record,),
        galleries={} if dataset is None else galleries(folder.name, [(config.method, folder)], dataset),
        table_metrics=choose_table_metrics(config),
        primary_metric=config.evaluation.selected_by,
        across=config.evaluation.across,
        recipes={config.method: (config.method, config.options)},
        dataset=config.data.name,
        configuration=to_toml(config),
        fingerprint=environment.get("data_fingerprint", ""),
        environment=read_environment([folder]),
        test_accesses=count_test_accesses([folder]),
        profiles=load_profiles([(config.method, config.seed, folder)]),
        images=None if dataset is None else study_images(dataset),
    )
