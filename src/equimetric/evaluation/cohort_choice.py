"""Cohort, form and strength of a normalisation, chosen on validation classes by the true accept rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from equimetric.errors import EquimetricError
from equimetric.escaping import name_text
from equimetric.evaluation.cohort import FORMS, Cohort, CohortForm
from equimetric.evaluation.engine.inputs import EmbeddingsLike, LabelsLike, prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.metrics.roc import check_rate, tar_at_far

__all__ = ["STRENGTHS", "CohortChoice", "CohortTrial", "choose_cohort"]

STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class CohortTrial:
    """The true accept rate with one cohort, form and strength."""

    cohort: str
    form: CohortForm
    strength: float
    tar: float


@dataclass(frozen=True, repr=False, eq=False)
class CohortChoice:
    """The best normalisation of those tried.

    cohort  ready for `evaluate(cohort=…)`; its strength is 0 where none helps
    best    the chosen trial
    trials  all of them, by strength
    far     the false accept rate at which they were compared
    """

    cohort: Cohort
    best: CohortTrial
    trials: tuple[CohortTrial, ...]
    far: float

    def __repr__(self) -> str:
        names = ["none" if trial.strength == 0 else name_text(trial.cohort) for trial in self.trials]
        width = max(len("cohort"), *map(len, names))
        lines = [f"TAR at FAR {self.far:g} on validation classes:", f"  {'cohort':<{width}}  form  strength     TAR"]
        lines += [
            f"  {name:<{width}}  {trial.form}  {trial.strength:8.2f}  {trial.tar:6.2%}"
            + ("  chosen" if trial is self.best else "")
            for name, trial in zip(names, self.trials, strict=True)
        ]
        return "\n".join(lines)


def choose_cohort(
    embeddings: EmbeddingsLike,
    labels: LabelsLike,
    candidates: Mapping[str, Cohort],
    *,
    strengths: Sequence[float] = STRENGTHS,
    forms: Sequence[CohortForm] = FORMS,
    far: float = 1e-2,
    block_rows: int | None = None,
    progress: bool = False,
) -> CohortChoice:
    """Choose a cohort, its form and its strength by the true accept rate of validation classes.

    embeddings  (N, D) of validation classes, never of those that are tested or calibrated on afterwards
    labels      (N,) their classes
    candidates  name → cohort, whose own form and strength do not matter. A cohort of the validation classes themselves
                needs their labels: a sample's own class does not count in its cohort
    strengths   of the mean form to try; 0 is no normalisation
    forms       the full form has no strength and is tried once
    far         false accept rate at which the true accept rates are compared

    The largest rate wins; where several are equal, the smaller strength.
    """
    check_rate(far)
    trials: list[tuple[CohortTrial, Cohort]] = []
    plain = prepare_sets(embeddings, labels)
    scan_options: dict[str, Any] = {"block_rows": block_rows, "progress": progress}
    for name, form, strength, cohort, sets in _normalized_sets(plain, candidates, strengths, forms):
        tar = tar_at_far(pair_distances(sets, closest_share=2 * far, **scan_options), far).tar
        trials.append((CohortTrial(name, form, strength, tar), cohort))
    trials.sort(key=lambda entry: entry[0].strength)
    best, cohort = max(trials, key=lambda entry: entry[0].tar)
    cohort.warn_if_narrow()
    return CohortChoice(cohort, best, tuple(trial for trial, _ in trials), far)


def _normalized_sets(
    plain: LabelledSets, candidates: Mapping[str, Cohort], strengths: Sequence[float], forms: Sequence[CohortForm]
) -> Iterator[tuple[str, CohortForm, float, Cohort, LabelledSets]]:
    """Every trial; the statistics of a candidate are computed once, and strength 0 is tried once."""
    if not candidates or not strengths or not forms:
        raise EquimetricError("there is nothing to choose from; give candidates, name → Cohort, strengths and forms")
    positive = [strength for strength in strengths if strength > 0]
    settings: list[tuple[CohortForm, float]] = [("mean", strength) for strength in positive] if "mean" in forms else []
    settings += [("full", 1.0)] if "full" in forms else []
    for index, (name, candidate) in enumerate(candidates.items()):
        if not index and len(positive) < len(strengths):
            cohort = replace(candidate, form="mean", strength=0.0)
            yield name, "mean", 0.0, cohort, cohort.normalize(plain)
        statistics = replace(candidate, strength=1.0).set_statistics(plain) if settings else None
        for form, strength in settings:
            cohort = replace(candidate, form=form, strength=strength)
            yield name, form, strength, cohort, cohort.normalize(plain, statistics)
