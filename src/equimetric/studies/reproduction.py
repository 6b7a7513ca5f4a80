"""Repeat runs from their stored configuration and compare the scores."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path

from equimetric.errors import EquimetricError
from equimetric.runs.data import load_run_data
from equimetric.runs.evaluation import require_same_data
from equimetric.runs.folder import RunFolder, describe_environment
from equimetric.runs.key import RunKey
from equimetric.runs.result import RunResult
from equimetric.studies.index import INDEX, StudyIndex
from equimetric.studies.outcomes import Outcome
from equimetric.training import train

__all__ = ["Reproduction", "changes", "find_runs", "reproduce_run", "scores"]

COMPARED_FACTS = ("equimetric", "code", "protocol", "python", "torch", "numpy", "platform", "cuda")
"""Facts of the environment that may explain a difference."""


@dataclass(frozen=True)
class Reproduction:
    """A run that was repeated.

    Attributes:
        folder: folder of the run.
        stored, repeated: the scores of the test classes.
        environment: facts that changed: name → (then, now).
    """

    folder: Path
    stored: Mapping[str, float]
    repeated: Mapping[str, float]
    environment: Mapping[str, tuple[object, object]]

    @property
    def differences(self) -> dict[str, float]:
        """Metric → repeated minus stored, where they are not equal to the last bit; NaN where one is missing."""
        names = dict.fromkeys([*self.stored, *self.repeated])
        missing = float("nan")
        pairs = {name: (self.stored.get(name, missing), self.repeated.get(name, missing)) for name in names}
        return {
            name: after - before
            for name, (before, after) in pairs.items()
            if before != after and not (isnan(before) and isnan(after))
        }

    @property
    def matches(self) -> bool:
        """Whether all scores are equal to the last bit."""
        return not self.differences

    def __str__(self) -> str:
        if self.matches:
            return f"identical: {len(self.stored)} scores of {self.folder.name} are equal to the last bit"
        worst = max(self.differences.items(), key=lambda item: abs(item[1]) if not isnan(item[1]) else float("inf"))
        text = f"different: {len(self.differences)} of {len(self.stored)} scores of {self.folder.name} differ, "
        text += f"{worst[0]} most, by {worst[1]:+.2g}"
        changes = ", ".join(f"{name} {then} → {now}" for name, (then, now) in self.environment.items())
        return f"{text}; changed since then: {changes or 'nothing that is recorded'}"


def reproduce_run(folder: Path, progress: Callable[[int, Mapping[str, float]], None] | None = None) -> Reproduction:
    """Train and test a finished run again, in a temporary folder, from its stored configuration."""
    run = RunFolder(folder)
    result = run.require_result()
    if result.status != "done":
        raise EquimetricError(f"the run in {str(folder)!r} failed ({result.error}), so there is nothing to reproduce")
    if result.role not in ("final", "baseline"):
        raise EquimetricError(
            f"{str(folder)!r} is a {result.role} run, made of others; reproduce the runs that it is made of"
        )
    config = run.config()
    run.require_parts(config)
    data = load_run_data(config.data, config.refit)
    require_same_data(run, data)
    with tempfile.TemporaryDirectory() as scratch:
        repeated = train(config, folder=scratch, role=result.role, progress=progress).result
    key = RunKey.from_config(config, data.fingerprint, role=result.role)
    now = {**describe_environment(data.fingerprint, key)}
    return Reproduction(folder, scores(result), scores(repeated), changes(run.environment() or {}, now))


def scores(result: RunResult | Outcome) -> dict[str, float]:
    """All scores of a run, on test and validation classes."""
    validation = {f"validation {name}": value for name, value in result.validation.items()}
    plain = {f"{name} plain": value for name, value in result.plain.items()}
    return {**result.metrics, **plain, **validation}


def changes(then: Mapping[str, object], now: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """Facts of the environment that have changed."""
    names = (name for name in COMPARED_FACTS if name in then)
    return {name: (then[name], now.get(name)) for name in names if then[name] != now.get(name)}


def find_runs(folder: Path) -> Iterator[Path]:
    """The folder itself, if it is a run; else the folders of the final runs of a study."""
    if not (folder / INDEX).exists():
        yield folder
        return
    index = StudyIndex(folder)
    for planned in index.planned.values():
        outcome = index.outcomes.get(planned.key.content)
        if planned.key.role in ("final", "baseline") and outcome is not None and outcome.status == "done":
            yield folder / planned.folder
