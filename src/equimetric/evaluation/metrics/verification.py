"""Verification metrics: are two samples of one class? AUC, EER, TAR at a false accept rate, rates at a distance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.engine.pair_distances import PairDistances
from equimetric.evaluation.evidence import Detail, Evidence, Score
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.metrics.roc import (
    area_under_roc,
    check_rate,
    class_rates,
    equal_error_rate,
    far_and_frr,
    interpolate_equal_error,
    roc_at,
    tar_at_far,
)
from equimetric.evaluation.resampling.class_statistics import (
    ClassStatistic,
    mean_over_class_pairs,
    resample_positive_pairs,
    shift_to_value,
)
from equimetric.evaluation.result import Evaluation

__all__ = ["AcceptRate", "ClassNegatives", "ClassRoc", "DistanceHistogram", "EqualErrorThreshold", "distance_histogram"]

PLOTTED_POINTS = 512
CLASS_POINTS = 64
"""Thresholds of the curves of single classes, along each of the two kinds of pairs."""
PLOTTED_BINS = 100
NUMBER = r"[0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?"


@dataclass(frozen=True)
class DistanceHistogram(Detail):
    """Positive and negative pairs (B,) between B + 1 edges of distances."""

    key = "distances"

    edges: Floats
    positive: Floats
    negative: Floats


@dataclass(frozen=True)
class ClassRoc(Detail):
    """Accepted pairs of every class (C, T) at T thresholds, and all pairs of every class (C,)."""

    key = "class_roc"

    positive: Floats
    negative: Floats
    positives: Floats
    negatives: Floats


@dataclass(frozen=True)
class EqualErrorThreshold(Detail):
    """The first threshold at which FAR is not below FRR."""

    eer_threshold: float


@dataclass(frozen=True)
class AcceptRate(Detail):
    """The threshold of a `tar@far=…` metric and its actual FAR; pairs are kept singly up to `exact_far`."""

    metric: str
    threshold: float
    far: float
    exact_far: float

    def json_entries(self) -> dict[str, Any]:
        """Entries that name the metric."""
        return {
            f"{self.metric} threshold": self.threshold,
            f"{self.metric} actual far": self.far,
            "negative pairs kept one by one up to far": self.exact_far,
        }


@dataclass(frozen=True)
class ClassNegatives(Detail):
    """Negative pairs of every class, (C,)."""

    class_negatives: Floats


def _curves(evidence: Evidence) -> tuple[Detail, ...]:
    """A ROC curve and histograms short enough to plot, exact at their points; shared by all metrics."""
    return evidence.compute_once("verification curves", lambda: _plot_curves(evidence[PairDistances]))


def _plot_curves(distances: PairDistances) -> tuple[Detail, ...]:
    shares = np.append(0.0, np.geomspace(1 / distances.negatives, 1, PLOTTED_POINTS // 2))
    curve = roc_at(distances, _thresholds_along(distances, shares, PLOTTED_POINTS // 2))
    return curve, distance_histogram(distances)


def distance_histogram(distances: PairDistances) -> DistanceHistogram:
    """Pairs in 100 bins of equal width between the smallest and the largest distance."""
    operating = distances.operating_distances
    edges = np.linspace(operating[0], operating[-1], PLOTTED_BINS + 1)
    counts = distances.count_accepted(edges)
    positive, negative = (np.diff(np.append(0.0, count[1:])) for count in (counts.positive, counts.negative))
    return DistanceHistogram(edges, positive, negative)


def _class_curves(evidence: Evidence) -> ClassRoc:
    return evidence.compute_once("class curves", lambda: _class_roc(evidence[PairDistances]))


def _class_roc(distances: PairDistances) -> ClassRoc:
    thresholds = _thresholds_along(distances, np.linspace(0, 1, CLASS_POINTS), CLASS_POINTS)
    counts = distances.count_accepted_by_class(thresholds)
    return ClassRoc(
        counts.positive,
        counts.negative,
        distances.positives_by_class.astype(np.float64),
        distances.negatives_by_class.astype(np.float64),
    )


def _thresholds_along(distances: PairDistances, shares: Floats, points: int) -> Floats:
    """Thresholds at these shares of the negative pairs, and at evenly spaced operating distances."""
    negative = distances.negative_distance((shares * (distances.negatives - 1)).astype(np.int64))
    operating = distances.operating_distances
    even = operating[np.linspace(0, len(operating) - 1, points).astype(np.int64)]
    return np.unique(np.concatenate([negative, even]))


def _resample_curves(
    value: Callable[[Floats, Floats], Floats],
) -> Callable[[Metric, Evaluation], ClassStatistic | None]:
    """The value of FAR = Σ (w_c − ½) n_c(d) / Σ (w_c − ½) n_c and TAR = Σ w_c p_c(d) / Σ w_c p_c, class by class."""

    def resample(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
        curves = evaluation.detail(ClassRoc)
        if curves is None or evaluation.multi_label:
            return None
        present = np.flatnonzero(curves.negatives > 0)
        positive, negative = curves.positive[present], curves.negative[present]
        positives, negatives = curves.positives[present], curves.negatives[present]

        def of_weights(weights: Floats) -> Floats:
            tar = weights @ positive / np.maximum(weights @ positives, 1)[:, None]
            shares = weights - 0.5
            far = np.clip(shares @ negative / np.maximum(shares @ negatives, 1)[:, None], 0, 1)
            start = np.zeros((len(weights), 1))
            return value(np.hstack([start, far]), np.hstack([start, tar]))

        return shift_to_value(evaluation[metric.name], ClassStatistic(present, of_weights))

    return resample


def _area(far: Floats, tar: Floats) -> Floats:
    """(B,) area under (B, T) points of curves."""
    return np.asarray((np.diff(far, axis=1) * (tar[:, 1:] + tar[:, :-1]) / 2).sum(axis=1))


def _resample_negative_pairs(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
    counts = evaluation.detail(ClassNegatives)
    if counts is None or evaluation.multi_label:
        return None
    return mean_over_class_pairs(evaluation.score_per_class[metric.name], counts.class_negatives)


@metric(
    "auc",
    needs_negatives=True,
    examples=("auc",),
    collectors=(PairDistances,),
    resample=_resample_curves(_area),
    multi_label=True,
)
def _auc(_: Metric, evidence: Evidence) -> Score:
    """Area under the ROC curve: a negative pair is farther than a positive one."""
    return Score(area_under_roc(evidence[PairDistances]), details=(*_curves(evidence), _class_curves(evidence)))


@metric(
    "eer",
    needs_negatives=True,
    higher_is_better=False,
    examples=("eer",),
    collectors=(PairDistances,),
    resample=_resample_curves(interpolate_equal_error),
    multi_label=True,
)
def _eer(_: Metric, evidence: Evidence) -> Score:
    """Equal error rate: where the false accept rate equals the false reject rate."""
    error, threshold = equal_error_rate(evidence[PairDistances])
    return Score(error, details=(*_curves(evidence), _class_curves(evidence), EqualErrorThreshold(threshold)))


@metric(
    "tar@far=F",
    needs_negatives=True,
    pattern=rf"tar@far=(?P<far>{NUMBER})",
    parameters={"far": lambda text: check_rate(float(text))},
    examples=("tar@far=1e-3",),
    collectors=(PairDistances,),
    resample=resample_positive_pairs,
    macro=True,
    multi_label=True,
)
def _tar(metric: Metric, evidence: Evidence) -> Score:
    """True accept rate at a false accept rate of at most F."""
    distances = evidence[PairDistances]
    point = tar_at_far(distances, metric["far"])
    per_class = torch.from_numpy(1 - class_rates(distances, point.threshold, strictly_below=True).frr)
    detail = AcceptRate(metric.name, point.threshold, point.far, distances.exact_far)
    return Score(point.tar, per_class=per_class, details=(*_curves(evidence), detail))


@metric(
    "far@distance=D",
    needs_negatives=True,
    higher_is_better=False,
    pattern=rf"far@distance=(?P<distance>{NUMBER})",
    parameters={"distance": float},
    examples=("far@distance=0.9",),
    collectors=(PairDistances,),
    resample=_resample_negative_pairs,
    macro=True,
    multi_label=True,
)
def _far(metric: Metric, evidence: Evidence) -> Score:
    """False accept rate where pairs up to distance D are accepted."""
    distances = evidence[PairDistances]
    far, _ = far_and_frr(distances, metric["distance"])
    per_class = torch.from_numpy(class_rates(distances, metric["distance"]).far)
    return Score(far, per_class=per_class, details=(ClassNegatives(distances.negatives_by_class.astype(np.float64)),))


@metric(
    "frr@distance=D",
    needs_negatives=True,
    higher_is_better=False,
    pattern=rf"frr@distance=(?P<distance>{NUMBER})",
    parameters={"distance": float},
    examples=("frr@distance=0.9",),
    collectors=(PairDistances,),
    resample=resample_positive_pairs,
    macro=True,
    multi_label=True,
)
def _frr(metric: Metric, evidence: Evidence) -> Score:
    """False reject rate where pairs up to distance D are accepted."""
    distances = evidence[PairDistances]
    _, frr = far_and_frr(distances, metric["distance"])
    return Score(frr, per_class=torch.from_numpy(class_rates(distances, metric["distance"]).frr))
