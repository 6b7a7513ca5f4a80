"""A metric as a function of how often each class is drawn: what intervals and comparisons resample.

A metric family declares, beside its score, one of these functions or its own.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.families import METRICS, Metric
from equimetric.evaluation.result import Evaluation

__all__ = [
    "WEIGHT_CHUNK_SIZE",
    "ClassStatistic",
    "class_statistic",
    "mean_over_class_pairs",
    "mean_over_classes",
    "mean_over_queries",
    "median_over_queries",
    "resample_positive_pairs",
    "shift_to_value",
]

WEIGHT_CHUNK_SIZE = 2**22
"""Most weights in memory at once."""


@dataclass(frozen=True)
class ClassStatistic:
    """A metric as a function of class weights, (B, C) → (B,); `classes` (C,) are the class numbers.

    Where the metric is Σ w_c s_c / Σ w_c n_c, `sums` s and `counts` n are given too.
    """

    classes: Integers
    of_weights: Callable[[Floats], Floats]
    sums: Floats | None = None
    counts: Floats | None = None


def class_statistic(evaluation: Evaluation, name: str) -> ClassStatistic:
    """The statistic of one metric of an evaluation: the mean over its queries, or what its family declares."""
    if name not in evaluation:
        raise unknown_name("metric of this evaluation", name, evaluation)
    statistic = _find_statistic(evaluation, name)
    if statistic is None:
        raise EquimetricError(
            f"{name!r} is a property of all classes together here, so drawing classes gives no interval for it; "
            "name another metric"
        )
    if len(statistic.classes) < 2:
        raise EquimetricError(f"{name!r} comes from a single class here; resampling classes needs at least two")
    return statistic


def _find_statistic(evaluation: Evaluation, name: str) -> ClassStatistic | None:
    scores = evaluation.score_per_query.get(name)
    if scores is not None:
        statistic = mean_over_queries(scores, evaluation.memberships, len(evaluation.class_labels))
        # A query without any label has a score where lone ones count as zero, but no class.
        unlabelled = np.setdiff1d(np.arange(evaluation.queries), evaluation.memberships[0].numpy())
        return statistic if scores[unlabelled].isnan().all() else shift_to_value(evaluation[name], statistic)
    metric = Metric.parse(name)
    if metric.macro:
        return mean_over_classes(evaluation.score_per_class[name])
    resample = METRICS[metric.family].resample
    return None if resample is None else resample(metric, evaluation)


def mean_over_queries(scores: Tensor, memberships: tuple[Tensor, Tensor], count: int) -> ClassStatistic:
    """Σ w_c s_c / Σ w_c n_c, with the sum s_c of the n_c scores of a class.

    A query of m classes, in the list of all queries and their classes, counts 1/m for each.
    """
    query, class_index = (part.cpu().numpy() for part in memberships)
    score, share = scores.cpu().numpy()[query], 1 / np.maximum(np.bincount(query), 1)[query]
    valid = ~np.isnan(score)
    class_index, score, share = class_index[valid], score[valid], share[valid]
    sizes: Floats = np.bincount(class_index, weights=share, minlength=count).astype(np.float64)
    sums: Floats = np.bincount(class_index, weights=score * share, minlength=count).astype(np.float64)
    return _ratio(sums, sizes)


def median_over_queries(scores: Tensor, memberships: tuple[Tensor, Tensor], count: int) -> ClassStatistic:
    """The median of the queries' scores, each with the weight of its class, 1/m of it for each of m classes."""
    query, class_index = (part.cpu().numpy() for part in memberships)
    score, share = scores.cpu().numpy()[query], 1 / np.maximum(np.bincount(query), 1)[query]
    order = np.argsort(score, kind="stable")
    order = order[~np.isnan(score[order])]
    score, class_index, share = score[order], class_index[order], share[order]
    present = np.flatnonzero(np.bincount(class_index, minlength=count))
    column = np.searchsorted(present, class_index)

    def of_weights(weights: Floats) -> Floats:
        medians = np.empty(len(weights))
        for row, drawn in enumerate(weights):
            below = np.cumsum(drawn[column] * share)
            middle = below[-1] / 2
            # Two values where half of the weight ends exactly between them.
            lower, upper = np.searchsorted(below, middle, "left"), np.searchsorted(below, middle, "right")
            medians[row] = (score[lower] + score[min(upper, len(score) - 1)]) / 2
        return medians

    return ClassStatistic(present, of_weights)


def mean_over_classes(per_class: Tensor, counts: Floats | None = None) -> ClassStatistic:
    """Σ w_c n_c s_c / Σ w_c n_c, all n_c = 1 by default; classes without a score are excluded."""
    score = per_class.cpu().numpy()
    counts = np.where(np.isnan(score), 0.0, 1.0 if counts is None else counts)
    return _ratio(np.nan_to_num(score) * counts, counts)


def mean_over_class_pairs(per_class: Tensor, counts: Floats | None = None) -> ClassStatistic:
    """The mean over pairs of two classes, where class c has the mean s_c over its n_c pairs; all n_c = 1 by default.

    A pair of the classes u and v counts w_u·w_v times, to first order w_u + w_v − 1 times, which leads to
    Σ (w_c − ½) n_c s_c / Σ (w_c − ½) n_c.
    """
    score = per_class.cpu().numpy()
    counts = np.ones(len(score)) if counts is None else counts
    present = np.flatnonzero(~np.isnan(score) & (counts > 0))
    counts = counts[present]
    sums = score[present] * counts
    return ClassStatistic(present, lambda weights: ((weights - 0.5) @ sums) / ((weights - 0.5) @ counts))


def resample_positive_pairs(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
    """The mean over positive pairs, from the means of the classes and their n_c (n_c − 1) pairs.

    None with a gallery, excluded images or several labels: the numbers of pairs are then others, which the evaluation
    does not hold.
    """
    if evaluation.multi_label:
        return None
    sizes = evaluation.query_classes.bincount(minlength=len(evaluation.class_labels)).double().numpy()
    statistic = mean_over_classes(evaluation.score_per_class[metric.name], sizes * (sizes - 1))
    all_once = statistic.of_weights(np.ones((1, len(statistic.classes))))[0]
    return statistic if np.isclose(all_once, evaluation[metric.name], rtol=1e-9) else None


def shift_to_value(value: float, statistic: ClassStatistic) -> ClassStatistic:
    """The statistic plus a constant, so that it gives the metric's own value where every class is drawn once."""
    offset = value - float(statistic.of_weights(np.ones((1, len(statistic.classes))))[0])
    return ClassStatistic(statistic.classes, lambda weights: statistic.of_weights(weights) + offset)


def _ratio(sums: Floats, counts: Floats) -> ClassStatistic:
    present = np.flatnonzero(counts)
    sums, counts = sums[present], counts[present]
    return ClassStatistic(present, lambda weights: (weights @ sums) / (weights @ counts), sums, counts)
