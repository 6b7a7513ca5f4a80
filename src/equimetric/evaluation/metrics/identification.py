"""Identification metrics, 1:N with strangers: FNIR and open-set rank-1 rate at a false positive identification rate.

The option `identification` of `evaluate` is an `IdentificationProtocol` or its fields by name. By default the nearest
item names a probe, all images are enrolled, a probe is left out of the gallery it searches, and half of the classes are
strangers, drawn ten times; where a gallery lacks the classes of some queries, these are the strangers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.evidence import Detail, Evidence, Score
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.identification.jackknife import leave_one_out_points
from equimetric.evaluation.identification.rates import (
    check_fpir,
    fnir_at,
    fnir_by_class,
    fpir_at,
    threshold_at_fpir,
)
from equimetric.evaluation.identification.search import GallerySearch
from equimetric.evaluation.metrics.verification import NUMBER
from equimetric.evaluation.resampling.class_statistics import ClassStatistic
from equimetric.evaluation.result import Evaluation

__all__ = ["IdentificationPoint", "resample_deletions"]


@dataclass(frozen=True, eq=False)
class IdentificationPoint(Detail):
    """The threshold of a metric at an FPIR, with the FPIR that it reaches.

    fpir        actual rate, at most the target
    identities  in the gallery
    without     (C,) FNIR at this FPIR without each class
    """

    metric: str
    threshold: float
    fpir: float
    identities: int
    without: Floats

    def json_entries(self) -> dict[str, Any]:
        """Entries that name the metric."""
        return {
            f"{self.metric} threshold": self.threshold,
            f"{self.metric} actual fpir": self.fpir,
            f"{self.metric} identities": self.identities,
        }


def resample_deletions(value: float, without: Floats) -> ClassStatistic:
    """To first order in how often classes are drawn: θ + Σ (w_c − 1) (C − 1)/C (mean of θ₋ − θ₋c), within 0 and 1.

    `without` (C,) are the values θ₋c without each class, NaN where there is none.
    """
    present = np.flatnonzero(np.isfinite(without))
    influence = (without[present].mean() - without[present]) * (len(present) - 1) / len(present)
    return ClassStatistic(present, lambda weights: np.clip(value + (weights - 1) @ influence, 0, 1))


def _resample(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
    point = evaluation.detail(IdentificationPoint, metric.name)
    if point is None:
        return None
    without = point.without if metric.family == "fnir@fpir=F" else 1 - point.without
    return resample_deletions(evaluation[metric.name], without)


def _point(metric: Metric, evidence: Evidence) -> tuple[float, torch.Tensor, IdentificationPoint]:
    """FNIR, its values by class, and the threshold."""
    search, fpir = evidence[GallerySearch], metric["fpir"]
    scores = evidence.compute_once("identification scores", lambda: search.all_scores)
    classes = len(evidence.sets.class_labels)
    threshold = threshold_at_fpir(scores, fpir)
    thresholds = np.array([threshold])
    point = IdentificationPoint(
        metric.name,
        threshold,
        float(fpir_at(scores, thresholds)[0]),
        search.draws[0].identities,
        leave_one_out_points(scores, classes, fpir)[1],
    )
    return float(fnir_at(scores, thresholds)[0]), torch.from_numpy(fnir_by_class(scores, classes, threshold)), point


DECLARATION: dict[str, Any] = {
    "parameters": {"fpir": lambda text: check_fpir(float(text))},
    "collectors": (GallerySearch,),
    "resample": _resample,
    "options": {"identification": None},
}


@metric(
    "fnir@fpir=F",
    needs_negatives=True,
    pattern=rf"fnir@fpir=(?P<fpir>{NUMBER})",
    examples=("fnir@fpir=1e-2",),
    higher_is_better=False,
    **DECLARATION,
)
def _fnir(metric: Metric, evidence: Evidence) -> Score:
    """Mated probes that are not found and named where at most F of the strangers are accepted."""
    value, per_class, point = _point(metric, evidence)
    return Score(value, per_class=per_class, details=(point,))


@metric(
    "rank1@fpir=F",
    needs_negatives=True,
    pattern=rf"rank1@fpir=(?P<fpir>{NUMBER})",
    examples=("rank1@fpir=1e-2",),
    **DECLARATION,
)
def _rank1(metric: Metric, evidence: Evidence) -> Score:
    """Open-set rank-1 rate: mated probes that are found and named where at most F of the strangers are accepted."""
    value, per_class, point = _point(metric, evidence)
    return Score(1 - value, per_class=1 - per_class, details=(point,))
