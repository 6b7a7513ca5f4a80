"""Known against unknown classes over all thresholds: AUROC of detection, and OSCR of detection and naming.

The probes are those of identification: mated ones of known classes, in the gallery, and strangers of unknown ones; the
option `identification` of `evaluate` is the same (see `metrics.identification`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.evidence import Detail, Evidence, Score, average_by_class, exact_mean
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.identification.jackknife import leave_one_class_out
from equimetric.evaluation.identification.scores import IdentificationScores
from equimetric.evaluation.identification.search import GallerySearch
from equimetric.evaluation.metrics.identification import resample_deletions
from equimetric.evaluation.resampling.class_statistics import ClassStatistic
from equimetric.evaluation.result import Evaluation

__all__ = ["LeaveOneOutValues"]

CURVE_POINTS = 257
"""Thresholds of the curves without single classes."""


@dataclass(frozen=True, eq=False)
class LeaveOneOutValues(Detail):
    """The value of a metric without each class, (C,)."""

    metric: str
    without: Floats

    def json_entries(self) -> dict[str, Any]:
        """Nothing: the values serve intervals alone."""
        return {}


def _share_beyond(scores: IdentificationScores, distance: Floats) -> Floats:
    """Share of strangers whose nearest entry is farther than each distance, half of those at the same."""
    nearest = np.sort(scores.distance[scores.stranger, 0])
    before, within = (np.searchsorted(nearest, distance, side) for side in ("left", "right"))
    return np.asarray(1 - (before + within) / (2 * len(nearest)))


def _score(metric: Metric, evidence: Evidence, per_probe: Floats, scores: IdentificationScores) -> Score:
    """The mean over mated probes (M,), by class, with the values without each class."""
    classes = len(evidence.sets.class_labels)
    known_classes = torch.from_numpy(scores.probe_class[~scores.stranger])
    values = torch.from_numpy(per_probe)
    without = _areas_without_classes(scores, classes, named=metric.family == "oscr")
    details = (LeaveOneOutValues(metric.name, without),)
    return Score(exact_mean(values), per_class=average_by_class(values, known_classes, classes), details=details)


def _areas_without_classes(scores: IdentificationScores, classes: int, *, named: bool) -> Floats:
    """(C,) area under the share of mated probes that are detected, or named, against FPIR, without each class."""
    nearest = np.sort(scores.distance[scores.stranger, 0])
    ranks = np.linspace(0, len(nearest) - 1, min(CURVE_POINTS, len(nearest))).astype(np.int64)
    thresholds = np.append(np.unique(nearest[ranks]), np.inf)
    deleted = leave_one_class_out(scores, classes, thresholds)
    height = 1 - deleted.fnir if named else deleted.detected
    return np.asarray(np.trapezoid(height, deleted.fpir, axis=1))


def _resample(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
    values = evaluation.detail(LeaveOneOutValues, metric.name)
    return None if values is None else resample_deletions(evaluation[metric.name], values.without)


DECLARATION: dict[str, Any] = {
    "collectors": (GallerySearch,),
    "resample": _resample,
    "options": {"identification": None},
}


def _scores(evidence: Evidence) -> IdentificationScores:
    return evidence.compute_once("identification scores", lambda: evidence[GallerySearch].all_scores)


@metric("open_auroc", needs_negatives=True, examples=("open_auroc",), **DECLARATION)
def _open_auroc(metric: Metric, evidence: Evidence) -> Score:
    """AUROC of known against unknown classes: a stranger's nearest entry is farther than a known probe's."""
    scores = _scores(evidence)
    return _score(metric, evidence, _share_beyond(scores, scores.distance[~scores.stranger, 0]), scores)


@metric("oscr", needs_negatives=True, examples=("oscr",), **DECLARATION)
def _oscr(metric: Metric, evidence: Evidence) -> Score:
    """Area under the rate of known probes that are found and named against the share of strangers accepted.

    Dhamija, Günther, Boult: "Reducing network agnostophobia" (2018). Never above `open_auroc`, which does not ask who.
    """
    scores = _scores(evidence)
    distance, change = scores.named_changes()
    return _score(metric, evidence, (change * _share_beyond(scores, distance)).sum(axis=1), scores)
