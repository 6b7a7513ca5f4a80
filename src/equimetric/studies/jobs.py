"""A study as a list of runs to do, each in a folder named after everything that determines it."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from equimetric.configuration import RunConfig, StudyConfig, load_config
from equimetric.data import Dataset, Split
from equimetric.errors import EquimetricError
from equimetric.objectives import Context
from equimetric.training.embedding import embed_images
from equimetric.training.loop import (
    Progress,
    build_learner,
    build_run_batches,
    context_of,
    count_parameters,
    data_transform,
    holds_vectors,
    judge,
    load_split,
    threads,
    train,
)
from equimetric.training.run_folder import RunFolder, run_hash

__all__ = ["Job", "check_study", "plan", "run_job"]


@dataclass(frozen=True)
class Job:
    """One run of a study: the row of the table it belongs to, its configuration and its folder."""

    row: str
    kind: Literal["trained", "baseline"]
    config: RunConfig
    folder: Path

    def to_json(self) -> dict[str, Any]:
        """A form that crosses process boundaries."""
        return {"row": self.row, "kind": self.kind, "config": self.config.model_dump(), "folder": str(self.folder)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Job:
        """The job behind `to_json`."""
        config = load_config(values["config"], RunConfig)
        return cls(values["row"], values["kind"], config, Path(values["folder"]))


def plan(study: StudyConfig, output: Path, data_fingerprint: str) -> list[Job]:
    """All runs of a study, the baselines first; seed by seed, so that an early look shows every method."""
    conditions = study.conditions()
    jobs = []

    def add(row: str, kind: Literal["trained", "baseline"], config: RunConfig) -> None:
        folder = output / study.name / row / f"{config.seed}-{run_hash(config, data_fingerprint)}"
        jobs.append(Job(row, kind, config, folder))

    for baseline in study.baselines:
        # Raw pixels know no randomness: one run says it all.
        for seed in study.seeds if baseline == "untrained" else study.seeds[:1]:
            add(baseline, "baseline", RunConfig.model_validate({**conditions, "method": baseline, "seed": seed}))
    for seed in study.seeds:
        for row, method in study.methods.items():
            optimizer = dict(conditions["optimizer"])
            if method.objective_lr is not None:
                optimizer["objective_lr"] = method.objective_lr
            values = {"method": method.method or row, "options": method.options, "seed": seed, "optimizer": optimizer}
            add(row, "trained", RunConfig.model_validate({**conditions, **values}))
    return jobs


def check_study(jobs: list[Job], dataset: Dataset, split: Split) -> None:
    """Build every learner and one sampler before anything is trained, so that mistakes show at once."""
    for job in jobs:
        if job.kind == "trained":
            config = job.config
            try:
                data_transform(config.data, dataset)
                context = context_of(config, dataset, split)
                build_learner(config, dataset.channels, context, vectors=holds_vectors(dataset))
                build_run_batches(config, dataset.labels[split.train])
            except TypeError as error:
                raise EquimetricError(f"method {job.row!r}: {error}") from None


def run_job(job: Job, progress: Progress | None = None) -> None:
    """Do one run; whatever goes wrong is written into its result, so that the other runs go on."""
    run = RunFolder(job.folder)
    try:
        if job.kind == "trained":
            train(job.config, folder=job.folder, progress=progress)
        else:
            run_baseline(job, run)
    except Exception as error:
        expected = isinstance(error, EquimetricError)
        run.write_result(
            {
                "status": "failed",
                "kind": job.kind,
                "method": job.config.method,
                "seed": job.config.seed,
                "error": str(error) if expected else "".join(traceback.format_exception_only(error)).strip(),
                "traceback": None if expected else traceback.format_exc(),
            }
        )


def run_baseline(job: Job, run: RunFolder) -> None:
    """Judge embeddings that no training has touched: the pixels themselves, or the network as initialised."""
    config = job.config
    with threads(config.training.threads):
        dataset, split = load_split(config.data)
        run.prepare(config, dataset.fingerprint)
        seen, vectors = data_transform(config.data, dataset), holds_vectors(dataset)
        judged = dataset if seen.test is None else dataset.viewed(seen.test)
        images = judged.subset(split.test).images
        if config.method == "raw_pixels":
            parameters = 0
            embeddings = images[:].flatten(1).to(torch.float32) / (1 if vectors else 255)
        else:
            context = Context(classes=2, dim=config.model.dim, images=1)
            plain = config.model_copy(update={"method": "contrastive", "options": {}})
            learner = build_learner(plain, dataset.channels, context, vectors=vectors)
            parameters = count_parameters(learner)
            embeddings = embed_images(learner, images)
        scores, per_query = judge(embeddings, dataset, split)
    run.write_per_query(per_query)
    run.write_result(
        {
            "status": "done",
            "kind": "baseline",
            "method": config.method,
            "seed": config.seed,
            "metrics": dict(scores),
            "validation": {},
            "best_step": 0,
            "steps": 0,
            "seconds": 0.0,
            "parameters": parameters,
        }
    )
