"""A study on disk, and its record, a pure function of the run folders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equimetric.configuration import load_config, to_toml
from equimetric.data import Dataset
from equimetric.errors import EquimetricError
from equimetric.files import write_atomically
from equimetric.runs.data import load_run_data
from equimetric.runs.folder import RunFolder
from equimetric.seeding import derive_seed
from equimetric.studies.configuration import StudyConfig
from equimetric.studies.jobs import Job, plan
from equimetric.studies.records import GalleryRow, RunRecord, StudyRecord

__all__ = ["load_study", "save_study"]

SHOWN = ("map@r", "r_precision", "recall@1")
"""Columns of the table, where runs report them; result.json has all metrics."""

DEVIATIONS = {
    ("crop_to_box", True): "images are cropped to bounding boxes; the zero-shot protocol uses whole images",
    ("decoding", "fast"): "large JPEGs are decoded at a fraction of their size",
}
"""Data option and value → what a reader must know when comparing with published figures."""

GALLERY_QUERIES = 6
GALLERY_NEIGHBOURS = 8


def save_study(folder: Path, study: StudyConfig, data_fingerprint: str) -> None:
    """Write the configuration of the study and the fingerprint of its data."""
    write_atomically(folder / "study.toml", to_toml(study))
    write_atomically(folder / "data.json", json.dumps({"fingerprint": data_fingerprint}))


def load_study(folder: str | Path) -> StudyRecord:
    """The record of a study from its folder: every planned run with a result, and the shared conditions."""
    folder = Path(folder)
    if not all((folder / name).exists() for name in ("study.toml", "data.json")):
        raise EquimetricError(f"{str(folder)!r} is not the folder of a study; give a folder such as runs/demo")
    study = load_config(folder / "study.toml", StudyConfig)
    fingerprint = json.loads((folder / "data.json").read_text(encoding="utf-8"))["fingerprint"]
    jobs = [job for job in plan(study, folder.parent, fingerprint) if RunFolder(job.folder).result() is not None]
    if not jobs:
        raise EquimetricError(f"study {study.name!r} has no finished run yet; run `equimetric compare` first")
    dataset = find_images(study, fingerprint)
    return StudyRecord(
        name=study.name,
        title=study.title or f"Comparison {study.name}",
        statement=statement(study, jobs),
        conditions=conditions(study, dataset),
        runs=tuple(run_record(job) for job in jobs),
        galleries={} if dataset is None else galleries(study, jobs, dataset),
        shown=shown_metrics(study),
        primary_metric=study.evaluation.selected_by,
    )


def shown_metrics(study: StudyConfig) -> tuple[str, ...]:
    """The metric that selects weights, then the default columns, or all metrics of a list that the user gave."""
    names = study.evaluation.names()
    usual = "metrics" not in study.evaluation.model_fields_set
    chosen = [name for name in SHOWN if name in names] if usual else names
    return tuple(dict.fromkeys([study.evaluation.selected_by, *chosen]))


def run_record(job: Job) -> RunRecord:
    """The part of a run that the report needs."""
    run = RunFolder(job.folder)
    result = run.result()
    assert result is not None
    return RunRecord(
        method=job.row,
        kind=job.kind,
        seed=job.config.seed,
        status=result.status,
        error=result.error,
        metrics=result.metrics,
        history=tuple(run.history()),
        seconds=result.seconds,
        parameters=result.parameters,
    )


def find_images(study: StudyConfig, fingerprint: str) -> Dataset | None:
    """The images of the study, for the gallery; None if they are missing or have changed."""
    try:
        data = load_run_data(study.data)
    except EquimetricError:
        return None
    return data.dataset if data.fingerprint == fingerprint and not data.vectors else None


def statement(study: StudyConfig, jobs: Sequence[Job]) -> tuple[str, ...]:
    """What was equal, and what the comparison does and does not show."""
    planned = len(study.seeds)
    sentences = [
        "All methods have the same network, embedding dimension, images, augmentation, batches, optimiser, schedule "
        f"and budget of {study.training.steps} steps, and for each seed the same initial network; only the method "
        "differs.",
        "All figures are measured on classes that are not in the training set. The evaluated weights are those with "
        f"the best {study.evaluation.selected_by} on validation classes, which are neither training nor test classes; "
        "the test classes were used once.",
        f"± is the half width of the 95 % t-interval over {planned} seeds: the uncertainty of the mean due to the seed."
        if planned > 1
        else "With one seed there are no intervals: the spread over seeds is unknown.",
        "The study shows what each method reaches with these options and this budget, on these images. It does not "
        "show what tuning or longer training would give: the order of methods changes with the budget, and methods "
        "with overlapping intervals cannot be separated.",
    ]
    missing = {(row, seed) for row in study.methods for seed in study.seeds} - {
        (job.row, job.config.seed) for job in jobs
    }
    if missing:
        sentences.append(f"Incomplete: {len(missing)} of {len(study.methods) * planned} runs have no result yet.")
    return tuple(sentences)


def conditions(study: StudyConfig, dataset: Dataset | None) -> dict[str, str]:
    """The shared conditions by name, in words."""
    data, batch, optimizer, training = study.data, study.batch, study.optimizer, study.training
    shown = {
        "Images": data.name + "".join(f", {key} {value}" for key, value in data.options.items()),
        "Split": (
            "official, or by class with the second half for the test if there is none; "
            if data.split is None
            else f"class lists number {data.split.number} of {Path(data.split.file).name}; "
        )
        + f"validation block {data.fold + 1} of {data.folds} of the other classes"
        + ("" if data.split_seed is None else f", shuffled by seed {data.split_seed}"),
        "Transform": data.transform,
        "Network": study.model.backbone
        + (f", weights from {study.model.pretrained}" if study.model.pretrained else "")
        + (", frozen" if study.model.frozen else "")
        + f", {study.model.dim}-dimensional embedding"
        + (" of unit length" if study.evaluation.geometry == "cosine" else ""),
        "Batch": f"{batch.kind}, {batch.classes} × {batch.samples} images"
        + "".join(f", {key} {value}" for key, value in batch.options.items()),
        "Optimiser": f"{optimizer.name}, learning rate {optimizer.lr:g} ({optimizer.schedule}), "
        f"weight decay {optimizer.weight_decay:g}",
        "Objective's own parameters": f"{optimizer.objective_name or optimizer.name}, "
        f"learning rate {optimizer.objective_lr:g}, "
        f"weight decay {optimizer.objective_weight_decay:g}",
        "Budget": f"{training.steps} steps, validation every {training.validate_every}",
        "Seeds": ", ".join(map(str, study.seeds)),
    }
    deviations = [text for (option, value), text in DEVIATIONS.items() if data.options.get(option) == value]
    if deviations:
        shown["Departs from the literature's protocol"] = "; ".join(deviations)
    if dataset is not None:
        shown["Images"] += f": {len(dataset):,} images of {dataset.classes:,} classes, {dataset.size}×{dataset.size}"
    for row, method in study.methods.items():
        changes = [f"{key} = {value}" for key, value in method.options.items()]
        if method.objective_lr is not None:
            changes.append(f"learning rate of the objective's own parameters {method.objective_lr:g}")
        if changes:
            shown[row] = ", ".join(changes)
    return shown


def galleries(study: StudyConfig, jobs: Sequence[Job], dataset: Dataset) -> dict[str, tuple[GalleryRow, ...]]:
    """The same few queries for every row of the table, with the neighbours that its first run retrieves."""
    shown: dict[str, tuple[GalleryRow, ...]] = {}
    for job in jobs:
        run = RunFolder(job.folder)
        result = run.result()
        if job.row not in shown and result is not None and result.status == "done":
            shown[job.row] = gallery(run.per_query(), dataset, derive_seed(study.name, "gallery"))
    return shown


def gallery(per_query: dict[str, np.ndarray[Any, Any]], dataset: Dataset, seed: int) -> tuple[GalleryRow, ...]:
    """A few random queries of distinct classes, with their nearest neighbours."""
    order = torch.randperm(len(per_query["index"]), generator=torch.Generator().manual_seed(seed)).tolist()
    labels = per_query["labels"]
    queries: list[int] = []
    for query in order:
        if labels[query] not in labels[queries] and len(queries) < GALLERY_QUERIES:
            queries.append(query)

    def name(index: int) -> str:
        return dataset.class_names[int(dataset.labels[index])]

    return tuple(
        GalleryRow(
            query=dataset.images[int(per_query["index"][query])].numpy(),
            query_name=name(int(per_query["index"][query])),
            neighbours=tuple(
                (dataset.images[int(n)].numpy(), name(int(n)), bool(dataset.labels[int(n)] == labels[query]))
                for n in per_query["neighbours"][query][:GALLERY_NEIGHBOURS]
            ),
        )
        for query in queries
    )
