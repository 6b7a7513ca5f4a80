"""Threshold consistency, OPIS: how differently classes, or whole data sets, behave under one common threshold.

See `utility_curves` for the definitions.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.engine.inputs import EmbeddingsLike, LabelsLike, convert_labels, prepare_sets
from equimetric.evaluation.engine.label_sets import require_one_class
from equimetric.evaluation.engine.pair_distances import PairDistances, pair_distances
from equimetric.evaluation.engine.sets import GeometryName, LabelledSets
from equimetric.evaluation.engine.survey import DEFAULT_FAR
from equimetric.evaluation.evidence import Evidence, Score
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.metrics.calibration_range import check_range_options, range_ends, range_thresholds
from equimetric.evaluation.metrics.sampled_consistency import estimate_consistency
from equimetric.evaluation.metrics.utility_curves import (
    CLASSES_AT_A_TIME,
    Consistency,
    average_over_range,
    check_share,
    group_size,
    utility,
)
from equimetric.evaluation.resampling.class_statistics import ClassStatistic
from equimetric.evaluation.result import Evaluation
from equimetric.ops.blocks import slices

__all__ = ["class_consistency", "data_set_consistency", "threshold_consistency"]


def threshold_consistency(
    embeddings: EmbeddingsLike,
    labels: LabelsLike,
    gallery_embeddings: EmbeddingsLike | None = None,
    gallery_labels: LabelsLike | None = None,
    *,
    geometry: GeometryName = "cosine",
    calibration_far: tuple[float, float] = DEFAULT_FAR,
    calibration_range: tuple[float, float] | None = None,
    calibration_points: int = 101,
    utility_c: float = 1.0,
    members: LabelsLike | None = None,
    cohort: Cohort | None = None,
    sample: int | None = None,
    seed: int = 0,
    block_rows: int | None = None,
    progress: bool = False,
) -> Consistency:
    """Measure how differently classes, or data sets, behave under one common threshold.

    calibration_far     the range lies between the thresholds of these false accept rates, over all negative pairs
    calibration_range   two distances instead
    calibration_points  thresholds in the range
    utility_c           weight of the true accept rate in the utility; 1: harmonic mean
    members             the data set of each row: compares whole data sets, each by the pairs inside it
    cohort              other classes by which cosines are normalised: thresholds are then negated scores −s′ in place
                        of distances; compare with those of a cohort of strength 0
    sample              estimate from this many rows, of all classes in proportion, each compared with everything; for
                        data too large to compare all pairs. The result has a standard error
    """
    compared: dict[str, Any] = {"geometry": geometry, "cohort": cohort}
    compared["multi_label"] = members is None and sample is None
    sets = prepare_sets(embeddings, labels, gallery_embeddings, gallery_labels, **compared)
    options: dict[str, Any] = {
        "calibration_far": calibration_far,
        "calibration_range": calibration_range,
        "calibration_points": calibration_points,
        "utility_c": utility_c,
    }
    check_range_options(options)
    how: dict[str, Any] = {"block_rows": block_rows, "progress": progress}
    if members is not None and sample is not None:
        raise EquimetricError("data sets cannot be sampled; give either members or sample")
    if members is not None:
        return data_set_consistency(sets, members, options, **how)
    if sample is not None:
        return estimate_consistency(sets, sample, seed, options, **how)
    return class_consistency(pair_distances(sets, range_only=True, **how, **options), options)


def class_consistency(distances: PairDistances, options: Mapping[str, Any]) -> Consistency:
    """Members are the classes with a positive and a negative pair."""
    check_range_options(options)
    numbers = np.flatnonzero((distances.positives_by_class > 0) & (distances.negatives_by_class > 0))
    thresholds = range_thresholds([distances], options)
    curves = np.empty((len(numbers), len(thresholds)))
    filled = 0
    for some in slices(distances.classes, CLASSES_AT_A_TIME):
        which = numbers[(numbers >= some.start) & (numbers < some.stop)]
        counts = distances.accepted_by_class(thresholds, some)
        tpr = counts.positive[which - some.start] / distances.positives_by_class[which, None]
        tnr = 1 - counts.negative[which - some.start] / distances.negatives_by_class[which, None]
        curves[filled : filled + len(which)] = utility(tpr, tnr, options["utility_c"])
        filled += len(which)
    names = tuple(distances.sets.class_labels[number] for number in numbers)
    return Consistency(thresholds, curves, names, numbers, range_ends(thresholds), distances.possible_error(thresholds))


def data_set_consistency(
    sets: LabelledSets,
    members: LabelsLike,
    options: Mapping[str, Any],
    *,
    block_rows: int | None = None,
    progress: bool = False,
) -> Consistency:
    """Members are whole data sets, each with all pairs inside it; the range is that of all their negative pairs."""
    require_one_class(sets, "the consistency of data sets")
    if sets.gallery is not None:
        raise EquimetricError("members name data sets of one collection; they cannot be compared with a gallery")
    names, place = np.unique(convert_labels(members, "members", len(sets.queries)), return_inverse=True)
    if len(names) < 2:
        raise EquimetricError(f"all members are the same data set ({names[0]}); consistency needs at least two")
    of_each = []
    for number, name in enumerate(names.tolist()):
        try:
            inside = sets.select(torch.from_numpy(place == number).to(sets.queries.device))
        except EquimetricError as error:
            raise EquimetricError(f"data set {name!r}: {error}") from error
        of_each.append(pair_distances(inside, block_rows=block_rows, progress=progress, **options))
    thresholds = range_thresholds(of_each, options)
    counts = [distances.accepted(thresholds) for distances in of_each]
    curves = [
        utility(count.positive / distances.positives, 1 - count.negative / distances.negatives, options["utility_c"])
        for count, distances in zip(counts, of_each, strict=True)
    ]
    return Consistency(
        thresholds,
        np.stack(curves),
        tuple(names.tolist()),
        np.arange(len(names)),
        range_ends(thresholds),
        max(distances.possible_error(thresholds) for distances in of_each),
    )


def _consistency(evidence: Evidence) -> Consistency:
    """Of the data sets where they are given, else of the classes; computed once for all metrics."""
    options = evidence.options
    if options["members"] is not None:
        return evidence.shared(
            "data set consistency", lambda: data_set_consistency(evidence.sets, options["members"], options)
        )
    return evidence.shared("class consistency", lambda: class_consistency(evidence[PairDistances], options))


def _resample_curves(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
    """OPIS, or with a share ε the ε-OPIS, of utility curves U_c (T, G) over the calibration range.

    OPIS = mean over the range of Σ w_c (U_c − Ū)² / T;  ε-OPIS = that of (Ū_best − Ū_worst)², where the best and the
    worst are the εT classes, counted as often as drawn, of highest and lowest mean utility.
    """
    curves = evaluation.detail(Consistency)
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


@metric(
    "opis@P%",
    higher_is_better=False,
    pattern=r"opis(?:@(?P<share>[0-9]+(?:\.[0-9]+)?)%)?",
    parameters={"share": lambda percent: check_share(float(percent) / 100)},
    defaults={"share": None},
    examples=("opis", "opis@10%"),
    collectors=(PairDistances,),
    options={
        "calibration_far": DEFAULT_FAR,
        "calibration_range": None,
        "calibration_points": 101,
        "utility_c": 1.0,
        "members": None,
    },
    resample=_resample_curves,
    percent=False,
    multi_label=True,
)
def _opis(metric: Metric, evidence: Evidence) -> Score:
    """Operating-point inconsistency: how much utility differs between classes, or between the best and worst P %."""
    found, per_class = _consistency(evidence), None
    if evidence.options["members"] is None:
        per_class = torch.full((len(evidence.sets.class_labels),), math.nan, dtype=torch.float64)
        per_class[torch.from_numpy(found.numbers)] = torch.from_numpy(found.mean_utility)
    value = found.opis if metric["share"] is None else found.epsilon_opis(metric["share"])
    return Score(value, per_class=per_class, details=(found,))
