"""A study as a list of runs, each in a folder named by a hash of everything that determines it."""

from __future__ import annotations

import errno
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from equimetric.configuration import load_config
from equimetric.errors import DamagedFileError, EquimetricError, StorageError
from equimetric.runs.access import require_writable
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.damage import set_aside, set_aside_if_damaged
from equimetric.runs.data import RunData
from equimetric.runs.folder import RunFolder
from equimetric.runs.key import Role, RunKey
from equimetric.runs.result import RunResult
from equimetric.studies.configuration import Baseline, StudyConfig
from equimetric.training.loop import Progress, train
from equimetric.training.preconditions import require_conditions, require_trainable

__all__ = ["Job", "RunEntry", "check_study", "choose_baselines", "plan", "run_job"]

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of the operating system that say nothing about the run that was writing."""


@dataclass(frozen=True)
class RunEntry:
    """One run of a study: its key, whose method is the row of the table, and its folder."""

    key: RunKey
    folder: Path

    @property
    def row(self) -> str:
        """The row of the table it belongs to."""
        return self.key.method

    @property
    def kind(self) -> Literal["trained", "baseline"]:
        """Whether the run trains."""
        return "baseline" if self.key.role == "baseline" else "trained"


@dataclass(frozen=True)
class Job(RunEntry):
    """A run to do, with its configuration."""

    config: RunConfig

    def to_json(self) -> dict[str, Any]:
        """Plain values, to send to a worker process."""
        return {"key": asdict(self.key), "config": self.config.model_dump(), "folder": str(self.folder)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Job:
        """The job from the values of `to_json`."""
        return cls(RunKey(**values["key"]), Path(values["folder"]), load_config(values["config"], RunConfig))


def choose_baselines(study: StudyConfig, data: RunData) -> StudyConfig:
    """The study with the baselines that its data allow, unless it names its own."""
    if study.baselines is not None:
        return study
    chosen: list[Baseline] = ["raw_features"] if data.vectors else ["raw_pixels"]
    if study.model.pretrained is not None and not data.vectors:
        chosen.append("raw_features")
    return study.model_copy(update={"baselines": [*chosen, "untrained"]})


def plan(study: StudyConfig, output: Path, data_fingerprint: str) -> list[Job]:
    """All runs of a study: baselines first, then seed by seed, so that an unfinished study has all methods."""
    conditions = study.conditions()
    jobs = []

    def add(row: str, role: Role, values: dict[str, Any]) -> None:
        config = RunConfig.model_validate({**conditions, **values})
        key = RunKey.of(config, data_fingerprint, method=row, role=role)
        jobs.append(Job(key, output / study.name / row / key.folder, config))

    for baseline in study.baselines or ():
        # Pixels and pretrained features are deterministic: one run is enough.
        given = study.model.pretrained is not None or study.data.name == "features"
        random = baseline == "untrained" or (baseline == "raw_features" and not given)
        for seed in study.seeds if random else study.seeds[:1]:
            add(baseline, "baseline", {"method": baseline, "learner": {"name": baseline}, "seed": seed})
    for seed in study.seeds:
        for row, method in study.methods.items():
            values: dict[str, Any] = {"method": method.method or row, "options": method.options, "seed": seed}
            values["learner"] = method.learner.model_dump()
            if method.objective_lr is not None:
                values["optimizer"] = {**conditions["optimizer"], "objective_lr": method.objective_lr}
            add(row, "final", values)
    return jobs


def check_study(jobs: list[Job], data: RunData) -> None:
    """Check the conditions, and build learner, optimiser and samplers of every row, so that mistakes raise at once."""
    require_conditions(jobs[0].config, data)
    for job in {job.row: job for job in jobs}.values():
        require_writable(job.folder, "run folder")
        try:
            require_trainable(job.config, data, build_learner(job.config, data.shape))
        except (TypeError, EquimetricError) as error:
            raise EquimetricError(f"method {job.row!r}: {error}") from None


def run_job(job: Job, progress: Progress | None = None) -> None:
    """Execute one run; an error is written to its result, so that the other runs continue.

    An error of writing is none of the run's: it raises, and the same command goes on once there is space.
    """
    try:
        train_job(job, progress)
    except StorageError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise StorageError(
                f"cannot write {error.filename or 'a file'}: {error.strerror}; nothing finished is lost: "
                "free some space and run the same command again"
            ) from error
        expected = isinstance(error, EquimetricError)
        RunFolder(job.folder).write_result(
            RunResult(
                status="failed",
                role=job.key.role,
                method=job.config.method,
                seed=job.config.seed,
                error=str(error) if expected else "".join(traceback.format_exception_only(error)).strip(),
                traceback=None if expected else traceback.format_exc(),
            )
        )


def train_job(job: Job, progress: Progress | None) -> None:
    """Train a run, from the start where what is in its folder is damaged; the damaged folder is kept beside it."""
    run = RunFolder(job.folder)
    set_aside_if_damaged(run)
    try:
        train(job.config, folder=job.folder, progress=progress, role=job.key.role)
    except DamagedFileError as error:
        if str(job.folder) not in error.problem:
            raise
        set_aside(run, error)
        train(job.config, folder=job.folder, progress=progress, role=job.key.role)
