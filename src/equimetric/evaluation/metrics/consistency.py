"""Threshold consistency, OPIS: how differently classes, or whole data sets, behave under one common threshold.

See `utility_curves` for the definitions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.inputs import EmbeddingsLike, LabelsLike, convert_labels, prepare_sets
from equimetric.evaluation.engine.label_sets import require_one_class
from equimetric.evaluation.engine.pair_distances import PairDistances, pair_distances
from equimetric.evaluation.engine.sets import GeometryName, LabelledSets
from equimetric.evaluation.engine.survey import DEFAULT_FAR
from equimetric.evaluation.metrics.calibration_range import check_range_options, range_ends, range_thresholds
from equimetric.evaluation.metrics.noise_note import add_noise_note
from equimetric.evaluation.metrics.sampled_consistency import estimate_consistency
from equimetric.evaluation.metrics.sampling_noise import class_noise, data_set_noise
from equimetric.evaluation.metrics.utility_curves import (
    CLASS_CHUNK_SIZE,
    Consistency,
    Rate,
    check_rate_name,
    rate_utility,
)
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
    rate: Rate = "both",
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
    rate                what the utility counts: `both` rates (OPIS), or 1 − `far` or 1 − `frr` alone
    members             the data set of each row: compares whole data sets, each by the pairs inside it
    cohort              other classes by which cosines are normalised: thresholds are then negated scores −s′ in place
                        of distances; compare with those of a cohort of strength 0
    sample              estimate from this many rows, of all classes in proportion, each compared with everything; for
                        data too large to compare all pairs. The result has a standard error, and no sampling noise
    """
    check_rate_name(rate)
    set_options: dict[str, Any] = {"geometry": geometry, "cohort": cohort}
    set_options["multi_label"] = members is None and sample is None
    sets = prepare_sets(embeddings, labels, gallery_embeddings, gallery_labels, **set_options)
    options: dict[str, Any] = {
        "calibration_far": calibration_far,
        "calibration_range": calibration_range,
        "calibration_points": calibration_points,
        "utility_c": utility_c,
    }
    check_range_options(options)
    scan_options: dict[str, Any] = {"block_rows": block_rows, "progress": progress}
    if members is not None and sample is not None:
        raise EquimetricError("data sets cannot be sampled; give either members or sample")
    if members is not None:
        return data_set_consistency(sets, members, options, rates=[rate], **scan_options)[rate]
    if sample is not None:
        return estimate_consistency(sets, sample, seed, options, rate=rate, **scan_options)
    distances = pair_distances(sets, range_only=True, by_image=True, **scan_options, **options)
    return class_consistency(distances, options, rates=[rate])[rate]


def class_consistency(
    distances: PairDistances, options: Mapping[str, Any], *, rates: Sequence[Rate], noise: bool = False
) -> dict[Rate, Consistency]:
    """Members are the classes with a positive and a negative pair.

    Sampling noise is measured where counts by image are at hand; with `noise`, an error says why it cannot be.
    """
    check_range_options(options)
    class_indices = np.flatnonzero((distances.positives_by_class > 0) & (distances.negatives_by_class > 0))
    names = tuple(distances.sets.class_labels[index] for index in class_indices)
    if len(names) < 2:
        only = f"only class {names[0]!r} has" if names else "no class has"
        raise EquimetricError(f"{only} a positive and a negative pair; consistency needs two classes to compare")
    thresholds = range_thresholds([distances], options)
    curves = {rate: np.empty((len(class_indices), len(thresholds))) for rate in rates}
    filled = 0
    for block in slices(distances.classes, CLASS_CHUNK_SIZE):
        block_classes = class_indices[(class_indices >= block.start) & (class_indices < block.stop)]
        counts = distances.count_accepted_by_class(thresholds, block)
        tpr = counts.positive[block_classes - block.start] / distances.positives_by_class[block_classes, None]
        tnr = 1 - counts.negative[block_classes - block.start] / distances.negatives_by_class[block_classes, None]
        for rate in rates:
            curves[rate][filled : filled + len(block_classes)] = rate_utility(rate, tpr, tnr, options["utility_c"])
        filled += len(block_classes)
    noises = class_noise(distances, thresholds, rates, options["utility_c"], required=noise)
    by_rate: dict[Rate, Consistency] = {
        rate: Consistency(
            thresholds,
            curves[rate],
            names,
            class_indices,
            range_ends(thresholds),
            distances.possible_error(thresholds),
            rate=rate,
            noise=noises.get(rate),
        )
        for rate in rates
    }
    return add_noise_note(by_rate, distances.images_by_class[class_indices])


def data_set_consistency(
    sets: LabelledSets,
    members: LabelsLike,
    options: Mapping[str, Any],
    *,
    rates: Sequence[Rate],
    noise: bool = False,
    block_rows: int | None = None,
    progress: bool = False,
) -> dict[Rate, Consistency]:
    """Members are whole data sets, each with all pairs inside it; the range is that of all their negative pairs."""
    require_one_class(sets, "the consistency of data sets")
    if sets.gallery is not None:
        raise EquimetricError("members name data sets of one collection; they cannot be compared with a gallery")
    names, index = np.unique(convert_labels(members, "members", len(sets.queries)), return_inverse=True)
    if len(names) < 2:
        raise EquimetricError(f"all members are the same data set ({names[0]}); consistency needs at least two")
    distances_by_set = []
    for i, name in enumerate(names.tolist()):
        try:
            member_sets = sets.select(torch.from_numpy(index == i).to(sets.queries.device))
        except EquimetricError as error:
            raise EquimetricError(f"data set {name!r}: {error}") from error
        distances_by_set.append(pair_distances(member_sets, block_rows=block_rows, progress=progress, **options))
    thresholds = range_thresholds(distances_by_set, options)
    counts = [distances.count_accepted(thresholds) for distances in distances_by_set]
    tpr = np.stack([count.positive / part.positives for count, part in zip(counts, distances_by_set, strict=True)])
    tnr = np.stack([1 - count.negative / part.negatives for count, part in zip(counts, distances_by_set, strict=True)])
    noises = data_set_noise(distances_by_set, thresholds, rates, options["utility_c"], required=noise)
    by_rate: dict[Rate, Consistency] = {
        rate: Consistency(
            thresholds,
            rate_utility(rate, tpr, tnr, options["utility_c"]),
            tuple(names.tolist()),
            np.arange(len(names)),
            range_ends(thresholds),
            max(distances.possible_error(thresholds) for distances in distances_by_set),
            rate=rate,
            noise=noises.get(rate),
        )
        for rate in rates
    }
    return add_noise_note(by_rate)
