"""The metrics of threshold consistency: OPIS, its forms of one rate alone, and what sampling contributes to them.

See `utility_curves` and `sampling_noise` for the definitions.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.pair_distances import NOISE_POINTS, PairDistances
from equimetric.evaluation.engine.survey import DEFAULT_FAR
from equimetric.evaluation.evidence import Evidence, Score
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.metrics.consistency import class_consistency, data_set_consistency
from equimetric.evaluation.metrics.utility_curves import (
    Consistency,
    Rate,
    average_over_range,
    check_share,
    group_size,
)
from equimetric.evaluation.resampling.class_statistics import ClassStatistic
from equimetric.evaluation.result import Evaluation

__all__: list[str] = []

SHARE = r"(?:@(?P<share>[0-9]+(?:\.[0-9]+)?)%)?"
PARAMETERS: dict[str, Callable[[str], Any]] = {
    "rate": str,
    "share": lambda percent: check_share(float(percent) / 100),
}
OPTIONS = {
    "calibration_far": DEFAULT_FAR,
    "calibration_range": None,
    "calibration_points": 101,
    "utility_c": 1.0,
    "members": None,
}


def _measure(metric: Metric, evidence: Evidence) -> Consistency:
    """The consistency that the metric reads, of data sets where they are given; computed once for all metrics."""
    options, distances = evidence.options, evidence[PairDistances]
    rates = list(
        dict.fromkeys(_rate(requested) for requested in distances.metrics if requested.name.startswith("opis"))
    )
    noise = any(requested.family == "opis_noise" for requested in distances.metrics)

    def measure() -> dict[Rate, Consistency]:
        if options["members"] is not None:
            return data_set_consistency(evidence.sets, options["members"], options, rates=rates, noise=noise)
        return class_consistency(distances, options, rates=rates, noise=noise)

    return evidence.compute_once("consistency", measure)[_rate(metric)]


def _rate(metric: Metric) -> Rate:
    rate: Rate = metric.parameters.get("rate", "both")
    return rate


def _score_classes(evidence: Evidence, class_indices: Integers, values: Floats) -> Tensor | None:
    """(C,) values of some classes; None for data sets."""
    if evidence.options["members"] is not None:
        return None
    per_class = torch.full((len(evidence.sets.class_labels),), math.nan, dtype=torch.float64)
    per_class[torch.from_numpy(class_indices)] = torch.from_numpy(values)
    return per_class


def _resample_curves(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
    """OPIS, or with a share ε the ε-OPIS, of utility curves U_c (T, G) over the calibration range.

    OPIS = mean over the range of Σ w_c (U_c − Ū)² / T;  ε-OPIS = that of (Ū_best − Ū_worst)², where the best and the
    worst are the εT classes, counted as often as drawn, of highest and lowest mean utility.
    """
    curves = evaluation.detail(Consistency, metric.name)
    if curves is None:
        return None
    utility, thresholds = curves.utility, curves.thresholds
    if metric["share"] is None:
        return ClassStatistic(curves.numbers, _spread_of_curves(utility, thresholds))
    group = group_size(metric["share"], len(utility))
    order = np.argsort(average_over_range(utility, thresholds), kind="stable")
    ranked = utility[order]

    def between_groups(weights: Floats) -> Floats:
        drawn = weights[:, order]
        upward, downward = np.cumsum(drawn, axis=1), np.cumsum(drawn[:, ::-1], axis=1)[:, ::-1]
        worst, best = (np.clip(group - (total - drawn), 0, drawn) for total in (upward, downward))
        return average_over_range(((best - worst) @ ranked / group) ** 2, thresholds)

    return ClassStatistic(curves.numbers, between_groups)


def _spread_of_curves(utility: Floats, thresholds: Floats) -> Callable[[Floats], Floats]:
    # About the mean of all curves, where the squares are small and lose little when subtracted.
    centred, members = utility - utility.mean(axis=0), len(utility)

    def spread(weights: Floats) -> Floats:
        variance = weights @ centred**2 / members - (weights @ centred / members) ** 2
        return average_over_range(variance, thresholds)

    return spread


def _resample_noise(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
    curves = evaluation.detail(Consistency, metric.name)
    if curves is None or curves.noise is None:
        return None
    variance = curves.noise.by_member
    return ClassStatistic(curves.noise.numbers, lambda weights: weights @ variance / len(variance))


@metric(
    "opis@P%",
    needs_negatives=True,
    higher_is_better=False,
    pattern=rf"opis{SHARE}",
    parameters=PARAMETERS,
    defaults={"share": None},
    examples=("opis", "opis@10%"),
    collectors=(PairDistances,),
    options=OPTIONS,
    resample=_resample_curves,
    percent=False,
    multi_label=True,
)
def _opis(metric: Metric, evidence: Evidence) -> Score:
    """Operating-point inconsistency: how much utility differs between classes, or between the best and worst P %."""
    consistency = _measure(metric, evidence)
    value = consistency.opis if metric["share"] is None else consistency.epsilon_opis(metric["share"])
    return Score(
        value, per_class=_score_classes(evidence, consistency.numbers, consistency.mean_utility), details=(consistency,)
    )


@metric(
    "opis_far@P%",
    needs_negatives=True,
    higher_is_better=False,
    pattern=rf"opis_(?P<rate>far){SHARE}",
    parameters=PARAMETERS,
    defaults={"share": None},
    examples=("opis_far", "opis_far@10%"),
    collectors=(PairDistances,),
    options=OPTIONS,
    resample=_resample_curves,
    percent=False,
    multi_label=True,
)
def _opis_far(metric: Metric, evidence: Evidence) -> Score:
    """`opis` of the false accept rate alone: how much 1 − FAR differs between classes."""
    return _opis(metric, evidence)


@metric(
    "opis_frr@P%",
    needs_negatives=True,
    higher_is_better=False,
    pattern=rf"opis_(?P<rate>frr){SHARE}",
    parameters=PARAMETERS,
    defaults={"share": None},
    examples=("opis_frr", "opis_frr@10%"),
    collectors=(PairDistances,),
    options=OPTIONS,
    resample=_resample_curves,
    percent=False,
    multi_label=True,
)
def _opis_frr(metric: Metric, evidence: Evidence) -> Score:
    """`opis` of the false reject rate alone: how much 1 − FRR differs between classes."""
    return _opis(metric, evidence)


@metric(
    "opis_noise",
    needs_negatives=True,
    higher_is_better=False,
    pattern=r"opis(?:_(?P<rate>far|frr))?_noise",
    parameters=PARAMETERS,
    examples=("opis_noise", "opis_far_noise", "opis_frr_noise"),
    collectors=(PairDistances,),
    options={**OPTIONS, "noise_points": NOISE_POINTS},
    resample=_resample_noise,
    percent=False,
)
def _opis_noise(metric: Metric, evidence: Evidence) -> Score:
    """What sampling alone contributes to `opis`, `opis_far` or `opis_frr`: their value if classes did not differ."""
    consistency = _measure(metric, evidence)
    assert consistency.noise is not None
    per_class = _score_classes(evidence, consistency.noise.numbers, consistency.noise.by_member)
    return Score(consistency.noise.value, per_class=per_class, details=(consistency,))
