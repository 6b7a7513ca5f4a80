"""Sources of variance of a study's scores as sentences: seeds, folds, classes, and trials of a search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.studies.records import StudyRecord
from equimetric.studies.statistics import VarianceComponent, variance_components

__all__ = ["variance_notes"]

MIN_SHOWN_SHARE = 0.005
"""Smaller shares are not mentioned."""


def variance_notes(study: StudyRecord) -> Iterator[str]:
    """Shares of variance of the test scores of trained rows, and of the validation scores of their trials."""
    components = test_components(study)
    if components:
        yield f"Variance of {study.primary_metric} of a single class, within a method: {describe(components)}."
    trials_text = trial_variances(study)
    if trials_text:
        yield trials_text


def test_components(study: StudyRecord) -> Sequence[VarianceComponent]:
    """Components of seed, fold and class; none where runs are missing."""
    trained = [row for row in study.methods if study.kind_of(row) == "trained"]
    cells: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = []
    for row in trained:
        by_seed: dict[int, list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]] = {}
        for run in study.runs_of(row, "done"):
            if study.primary_metric in run.per_class:
                by_seed.setdefault(run.seed, []).append(run.per_class[study.primary_metric])
        if len({len(folds) for folds in by_seed.values()}) != 1:
            return ()
        try:
            cells.append(np.array([np.stack(folds) for folds in by_seed.values()]))
        except ValueError:
            return ()
    if len({cell.shape for cell in cells}) != 1:
        return ()
    values = np.stack(cells)
    factors = ["method", "seed", "fold", "class"]
    axes = [axis for axis, size in enumerate(values.shape) if size > 1 or axis == 0]
    if 1 not in axes or 3 not in axes:
        return ()
    values = values.reshape([values.shape[axis] for axis in axes])
    try:
        return variance_components(values, [factors[axis] for axis in axes], fixed=["method"])
    except EquimetricError:
        return ()


def trial_variances(study: StudyRecord) -> str:
    """Spread of the trials of a search: the median over methods of their standard deviation and of their range."""
    scores = [[trial.score for trial in search.trials] for search in study.searches.values() if len(search.trials) > 1]
    if not scores:
        return ""
    deviation = float(np.median([np.std(row_scores, ddof=1) for row_scores in scores]))
    spread = float(np.median([max(row_scores) - min(row_scores) for row_scores in scores]))
    return (
        f"Tuning: the trials of a method differ by {100 * deviation:.1f} points (standard deviation of validation "
        f"{study.primary_metric}, median over methods), {100 * spread:.1f} from worst to best."
    )


def describe(components: Sequence[VarianceComponent]) -> str:
    """'class 83 %, seed × class 16 %, seed 0.5 %', largest first."""
    ordered = sorted(components, key=lambda component: -component.share)
    return ", ".join(
        f"{component.name} {100 * component.share:.3g} %" for component in ordered if component.share >= MIN_SHOWN_SHARE
    )
