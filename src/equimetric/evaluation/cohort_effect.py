"""What a cohort changes: rates of the classes at one threshold and utility curves, plain beside normalised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.engine.inputs import EmbeddingsLike, LabelsLike, prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.evaluation.families import check_metric_options
from equimetric.evaluation.metrics.consistency import class_consistency
from equimetric.evaluation.metrics.roc import class_rates, tar_at_far
from equimetric.evaluation.metrics.utility_curves import Consistency

__all__ = ["CohortEffect", "ScoreThreshold", "compare_cohort"]


@dataclass(frozen=True, eq=False)
class ScoreThreshold:
    """One threshold of the scores for all classes.

    score        pairs with a larger score are accepted
    far, tar     false and true accept rate of all pairs
    class_far    (C,) false accept rate of every class; NaN for a class without negative pairs
    consistency  utility curves of the classes; its thresholds are negated scores
    """

    score: float
    far: float
    tar: float
    class_far: Floats
    consistency: Consistency


@dataclass(frozen=True, repr=False, eq=False)
class CohortEffect:
    """The thresholds of one false accept rate, of plain and of normalised scores."""

    target_far: float
    plain: ScoreThreshold
    normalized: ScoreThreshold

    def __repr__(self) -> str:
        rows = {"plain": self.plain, "cohort": self.normalized}
        lines = [f"At FAR {self.target_far:g}:", f"  {'':<6}  {'TAR':>7}  {'worst class FAR':>15}  {'OPIS':>8}"]
        lines += [
            f"  {name:<6}  {point.tar:7.2%}  {np.nanmax(point.class_far):15.2%}  {point.consistency.opis:8.5f}"
            for name, point in rows.items()
        ]
        return "\n".join(lines)


def compare_cohort(
    embeddings: EmbeddingsLike,
    labels: LabelsLike,
    gallery_embeddings: EmbeddingsLike | None = None,
    gallery_labels: LabelsLike | None = None,
    *,
    cohort: Cohort,
    far: float = 1e-2,
    block_rows: int | None = None,
    progress: bool = False,
) -> CohortEffect:
    """Measure a space with a cohort and without, both by their scores: TAR, FAR of every class, consistency."""
    options = check_metric_options({})
    scan_options: dict[str, Any] = {"block_rows": block_rows, "progress": progress, "closest_share": 2 * far}

    def measure(variant: Cohort) -> ScoreThreshold:
        sets = prepare_sets(embeddings, labels, gallery_embeddings, gallery_labels, cohort=variant)
        distances = pair_distances(sets, **scan_options)
        point = tar_at_far(distances, far)
        class_far = class_rates(distances, point.threshold, strictly_below=True).far
        consistency = class_consistency(distances, options, rates=["both"])["both"]
        return ScoreThreshold(-point.threshold, point.far, point.tar, class_far, consistency)

    return CohortEffect(far, measure(replace(cohort, strength=0.0)), measure(cohort))
