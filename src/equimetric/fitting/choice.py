"""Choose objective, learning rate and dimension by cached trials on folds of the training and validation classes.

A candidate takes the place of raw features only where it gains more than one standard error: with g_f its gain in fold
f of F, where other classes validate, and s their standard deviation,

    mean(g) > s / √F

Few validation classes differ so much that the best of a dozen candidates looks better than raw features without being
it. A candidate that loses more than half a point of Recall@1 to raw features is left out: it pulls classes together at
the cost of the nearest neighbour, which a search shows first.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pydantic import ValidationError

from equimetric.checksums import json_document, read_json
from equimetric.errors import DamagedFileError
from equimetric.evaluation import format_score
from equimetric.files import write_atomically
from equimetric.fitting.budget import Budget
from equimetric.fitting.plan import FOLDS, MAX_RECALL_LOSS, UNTRAINED, Candidate, Plan, variations
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import RunData
from equimetric.runs.key import RunKey
from equimetric.runs.regimes import fit_to_data
from equimetric.runs.run_cache import RunCache
from equimetric.training import TrialResult, train_trial

__all__ = ["CandidateChoice", "Notify", "ScoredCandidate", "choose_candidate"]

MAX_CANDIDATES = 16
"""Candidates that are tried at most, however much time there is: validation classes are few."""

Notify = Callable[[str], None]


@dataclass(frozen=True)
class ScoredCandidate:
    """A candidate with its validation scores, the means over the folds, and the seconds of its trials.

    `values`, by which candidates are compared, hold for each fold the mean of two scores: MAP@R, for search, and the
    true accept rate, for the threshold.
    """

    candidate: Candidate
    scores: Mapping[str, float]
    values: tuple[float, ...]
    seconds: float

    @property
    def value(self) -> float:
        """The mean over the folds."""
        return fmean(self.values)

    def gain(self, other: ScoredCandidate) -> tuple[float, float]:
        """Mean gain over another candidate across folds, and its standard error."""
        gains = [score - other_score for score, other_score in zip(self.values, other.values, strict=True)]
        return fmean(gains), stdev(gains) / math.sqrt(len(gains))

    def describe(self) -> str:
        """'arcface: MAP@R 68.3 %, TAR 42.8 %'."""
        scores = ", ".join(f"{name} {format_score(name, value).strip()}" for name, value in self.scores.items())
        return f"{self.candidate.name}: {scores}"


@dataclass(frozen=True)
class CandidateChoice:
    """The best of the candidates that were tried.

    Attributes:
        candidates: all of them, in the order of the trials; raw features first.
        timed_out: whether the time was up before the last one.
    """

    candidates: tuple[ScoredCandidate, ...]
    timed_out: bool = False

    @property
    def best(self) -> ScoredCandidate:
        """The leader, where it gains more than a standard error on raw features; else these."""
        leader, raw = self.leader, self.candidates[0]
        gain, error = leader.gain(raw)
        return leader if gain > error else raw

    @property
    def leader(self) -> ScoredCandidate:
        """The one with the largest value of those that keep Recall@1.

        The first of equal ones, so what needs no training before what does.
        """
        return max(self.candidates, key=lambda scored: (self.keeps_recall(scored), scored.value))

    @property
    def best_trained(self) -> ScoredCandidate:
        """The best of those that were trained, before all one that keeps Recall@1."""
        trained = (scored for scored in self.candidates if scored.candidate.trains)
        return max(trained, key=lambda scored: (self.keeps_recall(scored), scored.value))

    def keeps_recall(self, scored: ScoredCandidate) -> bool:
        """Whether a candidate loses no more than half a point of Recall@1 to raw features."""
        return self.recall_loss(scored) <= MAX_RECALL_LOSS

    def recall_loss(self, scored: ScoredCandidate) -> float:
        """Recall@1 of raw features less that of a candidate, on validation classes."""
        return self.candidates[0].scores["recall@1"] - scored.scores["recall@1"]

    def describe(self) -> str:
        """The choice and, where it is not trained, the reason."""
        name, leader = self.best.candidate.name, self.leader
        if self.best.candidate.trains:
            return f"chosen: {name}{self.describe_losses()}"
        if leader is not self.best:
            gain, error = leader.gain(self.best)
            return (
                f"chosen: {name}, without training: on validation classes {leader.candidate.name} gains {gain:.2%} in "
                f"the mean of MAP@R and TAR, no more than the standard error of {error:.2%}, so that new classes may "
                f"not gain at all{self.describe_losses()}"
            )
        trained = self.best_trained
        if not self.keeps_recall(trained):
            return f"chosen: {name}, without training{self.describe_losses()}"
        return (
            f"chosen: {name}, without training, because no trained candidate was better on validation classes: "
            f"{self.best.value:.2%} in the mean of MAP@R and TAR, against {trained.value:.2%} by "
            f"{trained.candidate.name}{self.describe_losses()}"
        )

    def describe_losses(self) -> str:
        """What is left out for its Recall@1 though it has a larger value than the best; nothing where that is none."""
        losing = [scored for scored in self.candidates if not self.keeps_recall(scored)]
        losing = [scored for scored in losing if scored.value > self.best.value]
        if not losing:
            return ""
        losses = ", ".join(f"{scored.candidate.name} ({self.recall_loss(scored):.1%})" for scored in losing)
        return f"; left out, because they lose Recall@1 to raw features on validation classes: {losses}"


def choose_candidate(
    plan: Plan, folder: Path, budget: Budget, cache: RunCache, notify: Notify = lambda _: None
) -> CandidateChoice:
    """Try candidates without training and the base objectives, then neighbours of the best of these.

    It ends where no neighbour is better or the time is up. Each trial is cached in `folder` under the hash of all that
    determines it, so a second start repeats none of them. Candidates without training and the first objective are
    always tried.
    """
    scored: list[ScoredCandidate] = []
    for candidate in proposals(plan, scored):
        trained = [result.seconds for result in scored if result.candidate.trains]
        if trained and budget.left < max(trained) and not is_cached(plan, candidate, folder, cache):
            return CandidateChoice(tuple(scored), timed_out=True)
        scored.append(try_candidate(plan, candidate, folder, cache))
        notify(f"{scored[-1].describe()} ({budget.describe()})")
    return CandidateChoice(tuple(scored))


def proposals(plan: Plan, scored: list[ScoredCandidate]) -> Iterator[Candidate]:
    """All candidates, then neighbours of the best trained one so far; the caller appends to `scored`."""
    yield from UNTRAINED
    yield from plan.candidates
    while len(scored) < MAX_CANDIDATES:
        tried = {result.candidate for result in scored}
        best = CandidateChoice(tuple(scored)).best_trained.candidate
        neighbour = next((candidate for candidate in variations(best, plan) if candidate not in tried), None)
        if neighbour is None:
            return
        yield neighbour


def try_candidate(plan: Plan, candidate: Candidate, folder: Path, cache: RunCache) -> ScoredCandidate:
    """Run the trials of all folds and average them."""
    start = time.monotonic()
    results = [try_fold(plan.run_config(candidate, fold), folder, cache) for fold in range(FOLDS)]
    scores = {name: fmean(result.validation[name] for result in results) for name in results[0].validation}
    values = tuple(fmean(result.validation[name] for name in plan.chosen_by) for result in results)
    # Cached trials are read at once; their recorded seconds tell how long the next candidate may take.
    seconds = max(time.monotonic() - start, sum(result.seconds for result in results))
    return ScoredCandidate(candidate, scores, values, seconds)


def try_fold(config: RunConfig, folder: Path, cache: RunCache) -> TrialResult:
    """The trial of a configuration, cached if it was run before."""
    file = trial_file(config, folder, cache)
    cached = read_trial(file)
    if cached is not None:
        return cached
    result = train_trial(config, cache=cache)
    write_atomically(file, json_document(result.model_dump(mode="json")))
    return result


def is_cached(plan: Plan, candidate: Candidate, folder: Path, cache: RunCache) -> bool:
    """Whether all trials of a candidate are cached, so that it takes no time."""
    files = [trial_file(plan.run_config(candidate, fold), folder, cache) for fold in range(FOLDS)]
    return all(read_trial(file) is not None for file in files)


def trial_file(config: RunConfig, folder: Path, cache: RunCache) -> Path:
    """Cache file of the trial of a configuration."""
    return folder / f"{trial_key(config, cache.data(config, test=False)).content}.json"


def trial_key(config: RunConfig, data: RunData) -> RunKey:
    """The key of a trial: everything that determines its result, images and weights by content."""
    return RunKey.from_config(fit_to_data(config, data.shape), data.fingerprint, role="trial")


def read_trial(file: Path) -> TrialResult | None:
    """A cached trial; None where there is none, or where it is damaged and runs again."""
    if not file.exists():
        return None
    with contextlib.suppress(DamagedFileError, ValidationError):
        values: dict[str, Any] = read_json(file, dict, "it is made again")
        return TrialResult.model_validate(values)
    return None
