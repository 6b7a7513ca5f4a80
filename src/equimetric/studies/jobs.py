"""One unit of a study's work: a run, a trial of a search, or fold models joined; and its execution, in any process."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from equimetric.code_version import code_fingerprint
from equimetric.configuration import load_config
from equimetric.errors import DamagedFileError, EquimetricError, StorageError
from equimetric.own_parts import install_parts
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.damage import set_aside, set_aside_if_damaged
from equimetric.runs.folder import RunFolder
from equimetric.runs.key import RunKey, run_parts
from equimetric.runs.result import DataShape, RunResult
from equimetric.runs.run_cache import RunCache
from equimetric.studies.joining import join_folds
from equimetric.studies.outcomes import ClassList, Outcome, make_outcome
from equimetric.studies.probes.probe import PROBES
from equimetric.training.loop import Progress, train
from equimetric.training.trials import train_trial

__all__ = ["Job", "RowCheck", "RunEntry", "build_rows", "run_job"]

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
    """A run to execute, with its configuration.

    Attributes:
        config: configuration of the run; for joined folds, that of the first.
        point: point of a sweep; '' for the study itself.
        params: values that a search tries or has chosen.
        search: hash of the search that a trial belongs to.
        members: folders of the runs that are joined or probed; empty for everything else.
        probe: name of a probe.
        profile: whether the run stores a profile for reports; the first run of every row does.
    """

    config: RunConfig
    point: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    search: str = ""
    members: tuple[Path, ...] = ()
    probe: str = ""
    profile: bool = False

    @property
    def has_folder(self) -> bool:
        """Whether the job leaves a folder; trials and probes leave a line of the index."""
        return self.key.role not in ("trial", "probe")

    @property
    def steps(self) -> int:
        """Steps that the job takes, at most; of a probe, a scale for its progress."""
        return self.config.training.steps if self.key.role in ("final", "trial", "probe") else 0

    def to_json(self) -> dict[str, Any]:
        """Plain values, to send to a worker process."""
        return {
            "key": asdict(self.key),
            "folder": str(self.folder),
            "config": self.config.model_dump(),
            "point": self.point,
            "params": dict(self.params),
            "search": self.search,
            "members": [str(folder) for folder in self.members],
            "probe": self.probe,
            "profile": self.profile,
            "parts": run_parts(self.config).to_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Job:
        """The job from the values of `to_json`; components of the sender's own are registered here, too."""
        install_parts(values["parts"])
        return cls(
            RunKey(**values["key"]),
            Path(values["folder"]),
            load_config(values["config"], RunConfig),
            values["point"],
            values["params"],
            values["search"],
            tuple(map(Path, values["members"])),
            values["probe"],
            values["profile"],
        )


@dataclass(frozen=True)
class RowCheck:
    """A row whose method a worker builds before anything trains: what it will see is what the caller's process sent."""

    row: str
    config: RunConfig
    shape: DataShape

    def to_json(self) -> dict[str, Any]:
        """Plain values, to send to a worker process."""
        config = self.config.model_dump()
        parts = run_parts(self.config).to_json()
        return {"row": self.row, "config": config, "shape": self.shape.model_dump(mode="json"), "parts": parts}


def build_rows(rows: Sequence[Mapping[str, Any]], cache: RunCache | None = None) -> str:
    """Build the learners and objectives of rows; what is wrong with the first that cannot be built, '' if all can."""
    for row in rows:
        try:
            install_parts(row["parts"])
            config = load_config(row["config"], RunConfig)
            build_learner(config, DataShape.model_validate(row["shape"]), cache=cache)
        except Exception as error:
            reason = str(error) if isinstance(error, EquimetricError) else last_traceback_line(error)
            return f"method {row['row']!r} cannot be built in a worker process: {reason}"
    return ""


def last_traceback_line(error: Exception) -> str:
    """The last line of a traceback."""
    return "".join(traceback.format_exception_only(error)).strip()


def run_job(
    job: Job, progress: Progress | None = None, cache: RunCache | None = None
) -> tuple[Outcome, ClassList | None]:
    """Run a job. An error becomes its outcome, so that the other jobs continue.

    `cache` holds data shared with other runs of this process. A failed write is not the fault of the run: it raises,
    and the same command resumes once there is space.
    """
    try:
        if job.key.role == "trial":
            return run_trial(job, progress, cache), None
        if job.probe:
            return measure_probe(job, progress), None
        class_names = join_members(job) if job.members else train_job(job, progress, cache)
        run = RunFolder(job.folder)
        result = run.result()
        assert result is not None
        return describe_run(job, run, result, class_names)
    except StorageError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise StorageError(
                f"cannot write {error.filename or 'a file'}: {error.strerror}; nothing finished is lost: "
                "free some space and run the same command again"
            ) from error
        return record_failure(job, error), None


def describe_run(
    job: Job, run: RunFolder, result: RunResult, class_names: tuple[str, ...]
) -> tuple[Outcome, ClassList | None]:
    """The outcome of a run that has a result, and its test classes."""
    selected_by = job.config.evaluation.selected_by
    return make_outcome(
        job.key, run, result, class_names, selected_by=selected_by, params=job.params, code=code_fingerprint()
    )


def record_failure(job: Job, error: Exception) -> Outcome:
    """The outcome of a job that failed, written to the folder of its run, too, where it has one."""
    expected = isinstance(error, EquimetricError)
    message = str(error) if expected else last_traceback_line(error)
    trace = None if expected else traceback.format_exc()
    if job.has_folder:
        RunFolder(job.folder).write_result(
            RunResult(
                status="failed",
                role=job.key.role,
                method=job.config.method,
                seed=job.config.seed,
                error=message,
                traceback=trace,
            )
        )
    return Outcome(
        job.key,
        "failed",
        params=job.params,
        search=job.search,
        error=message,
        traceback=trace,
        code=code_fingerprint(),
    )


def run_trial(job: Job, progress: Progress | None, cache: RunCache | None) -> Outcome:
    """A trial of a search: trained and validated; it never sees the test classes, and leaves no folder."""
    trial = train_trial(job.config, progress=progress, cache=cache)
    metric = job.config.evaluation.selected_by
    lines = (line for line in trial.history if metric in line)
    return Outcome(
        job.key,
        "done",
        validation=trial.validation,
        curve=tuple((int(line["step"]), float(line[metric])) for line in lines),
        params=job.params,
        search=job.search,
        best_step=trial.best_step,
        steps=trial.steps,
        seconds=trial.seconds,
        code=code_fingerprint(),
    )


def measure_probe(job: Job, progress: Progress | None) -> Outcome:
    """A further measurement of final runs; its progress is that of a run with as many steps as theirs."""

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(job.steps * done // max(total, 1), {})

    values = PROBES.find(job.probe).measure(job.members, report)
    return Outcome(job.key, "done", metrics=values, params=job.params, code=code_fingerprint())


def train_job(job: Job, progress: Progress | None, cache: RunCache | None) -> tuple[str, ...]:
    """Train a run, from the start where what is in its folder is damaged; the damaged folder is kept beside it.

    Gives the names of the data's classes.
    """
    run = RunFolder(job.folder)
    set_aside_if_damaged(run)
    options: dict[str, Any] = {"role": job.key.role, "cache": cache, "profile": job.profile}
    try:
        train(job.config, folder=job.folder, progress=progress, **options)
    except DamagedFileError as error:
        if str(job.folder) not in error.problem:
            raise
        set_aside(run, error)
        train(job.config, folder=job.folder, progress=progress, **options)
    return load_class_names(job.config, cache)


def join_members(job: Job) -> tuple[str, ...]:
    """Evaluate fold models side by side; gives the names of the data's classes."""
    set_aside_if_damaged(RunFolder(job.folder))
    return join_folds(job.members, RunFolder(job.folder), job.config, job.key)


def load_class_names(config: RunConfig, cache: RunCache | None) -> tuple[str, ...]:
    """The names of the classes of a run's data."""
    return (cache or RunCache()).data(config).dataset.class_names
