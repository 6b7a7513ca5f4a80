"""Form and strength of a cohort's normalisation, chosen on classes that are not in the cohort.

The default is the mean form of the first cohort at half strength. Another candidate takes its place only where its gain
in true accept rate is more than one standard error over classes: with g_c the gain without class c of C, threshold and
all, and ḡ their mean,

    g > √((C − 1) / C · Σ_c (g_c − ḡ)²)

A cohort that holds the classes it is chosen on consists of the very pairs that set the threshold there and not on other
classes, so it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.escaping import name_text
from equimetric.evaluation.cohort import FORMS, Cohort, CohortForm
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.engine.cohort_statistics import cohort_statistics
from equimetric.evaluation.engine.inputs import EmbeddingsLike, LabelsLike, prepare_sets
from equimetric.evaluation.engine.mapped_vectors import load_vectors
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.metrics.roc import check_rate, tar_at_far, tar_without_each_class

__all__ = ["DEFAULT_STRENGTH", "STRENGTHS", "CohortChoice", "CohortTrial", "choose_cohort"]

STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)

DEFAULT_STRENGTH = 0.5
"""Strength of the mean form where validation classes do not clearly prefer another."""

EQUAL, MAX_SHARED = 1e-6, 0.01
"""Embeddings are equal up to this difference of their cosine from 1; a cohort without labels may have this share of the
validation embeddings, as some images are in two classes.
"""


@dataclass(frozen=True)
class CohortTrial:
    """The true accept rate with one cohort, form and strength.

    error  standard error over classes of the gain in this rate on that of the default
    """

    cohort: str
    form: CohortForm
    strength: float
    tar: float
    error: float


@dataclass(frozen=True, repr=False, eq=False)
class CohortChoice:
    """The default normalisation, or another that gains more than a standard error on it.

    cohort   ready for `evaluate(cohort=…)`; its strength is 0 where none is best
    best     the chosen trial
    default  the trial that the others had to exceed
    trials   all of them, by strength
    far      the false accept rate at which they were compared
    """

    cohort: Cohort
    best: CohortTrial
    default: CohortTrial
    trials: tuple[CohortTrial, ...]
    far: float

    def __repr__(self) -> str:
        names = ["none" if trial.strength == 0 else name_text(trial.cohort) for trial in self.trials]
        width = max(len("cohort"), *map(len, names))
        lines = [
            f"TAR at FAR {self.far:g} on validation classes, gain on the default ± standard error over classes:",
            f"  {'cohort':<{width}}  form  strength     TAR  gain",
        ]
        lines += [
            f"  {name:<{width}}  {trial.form}  {trial.strength:8.2f}  {trial.tar:6.2%}  {self._gain_text(trial)}"
            + ("  chosen" if trial is self.best else "")
            for name, trial in zip(names, self.trials, strict=True)
        ]
        return "\n".join(lines)

    def _gain_text(self, trial: CohortTrial) -> str:
        return "default" if trial is self.default else f"{trial.tar - self.default.tar:+.2%} ± {trial.error:.2%}"


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
    candidates  name → cohort of other classes, whose own form and strength do not matter; one that holds validation
                classes or their embeddings raises an error
    strengths   of the mean form to try; 0 is no normalisation
    forms       the full form has no strength and is tried once
    far         false accept rate at which the true accept rates are compared

    The default is the mean form of the first candidate at half strength, or at the nearest strength to try. Of those
    that gain more than one standard error over classes on it, the one with the largest rate takes its place.
    """
    check_rate(far)
    plain = prepare_sets(embeddings, labels)
    for name, candidate in candidates.items():
        _require_other_classes(name, candidate, plain)
    scan_options: dict[str, Any] = {"block_rows": block_rows, "progress": progress}
    measured: list[tuple[CohortTrial, Cohort, Floats]] = []
    for name, form, strength, cohort, sets in _normalized_sets(plain, candidates, strengths, forms):
        distances = pair_distances(sets, closest_share=2 * far, **scan_options)
        trial = CohortTrial(name, form, strength, tar_at_far(distances, far).tar, 0.0)
        measured.append((trial, cohort, tar_without_each_class(distances, far)))
    measured.sort(key=lambda entry: entry[0].strength)
    first = next(iter(candidates))
    default, cohort, default_rates = min(measured, key=lambda entry: _distance_from_default(entry[0], first))
    best, trials = default, []
    for measured_trial, normalized, rates in measured:
        trial = default
        if measured_trial is not default:
            trial = replace(measured_trial, error=_jackknife_error(rates - default_rates))
        trials.append(trial)
        if trial.tar - default.tar > trial.error and trial.tar > best.tar:
            best, cohort = trial, normalized
    cohort.warn_if_narrow()
    return CohortChoice(cohort, best, default, tuple(trials), far)


def _distance_from_default(trial: CohortTrial, first: str) -> tuple[Any, ...]:
    """Smallest for the mean form of the first cohort at half strength; what normalises comes before what does not."""
    return (
        trial.strength == 0,
        trial.cohort != first,
        trial.form != "mean",
        abs(trial.strength - DEFAULT_STRENGTH),
        trial.strength,
    )


def _jackknife_error(values: Floats) -> float:
    """The standard error of a figure, from its (C,) values without each class."""
    return float(np.sqrt((len(values) - 1) * np.var(values)))


def _require_other_classes(name: str, cohort: Cohort, plain: LabelledSets) -> None:
    """Raise an error where a cohort holds what it is to be chosen on."""
    advice = "they would set the threshold and be its cohort at once; give a cohort of other classes"
    if cohort.classes is not None:
        shared = sorted(set(cohort.classes) & set(plain.class_labels), key=str)
        if shared:
            raise EquimetricError(
                f"{len(shared)} classes of the cohort {name!r} are validation classes, such as {shared[0]!r}: {advice}"
            )
        return
    queries = load_vectors(plain.queries, "a cohort")
    nearest = cohort_statistics(queries, cohort.unit.to(queries), 1).mean
    equal = int((nearest > 1 - EQUAL).sum())
    if equal > MAX_SHARED * len(queries):
        raise EquimetricError(
            f"{equal:,} of {len(queries):,} validation embeddings are in the cohort {name!r}: {advice}"
        )


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
