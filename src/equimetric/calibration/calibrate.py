"""`calibrate`: one distance threshold for all classes, and how well it holds for each class.

The threshold is the largest that accepts at most the target share of all negative pairs. Its effect on unknown classes
is measured on held-out ones: the classes of a fold are evaluated at the threshold of the other folds.
"""

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equimetric.calibration.rates import class_counts, pooled_rates, rates_by_class
from equimetric.calibration.result import Calibration
from equimetric.calibration.threshold_interval import SEARCHED_FACTOR, threshold_interval
from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.inputs import (
    EmbeddingsLike,
    LabelArray,
    LabelsLike,
    convert_embeddings,
    convert_labels,
    prepare_sets,
)
from equimetric.evaluation.engine.pair_distances import PairDistances, pair_distances
from equimetric.evaluation.engine.sets import GeometryName, LabelledSets
from equimetric.evaluation.metrics.roc import tar_at_far
from equimetric.seeding import derive_seed

__all__ = ["assign_folds", "calibrate", "data_fingerprint"]

LEAST_ACCEPTED = 10
"""Expected false accepts for a rate to be estimated: 10 ± √10 is a third either way."""


def calibrate(
    embeddings: EmbeddingsLike,
    labels: LabelsLike,
    far: float = 1e-3,
    *,
    geometry: GeometryName = "cosine",
    members: LabelsLike | None = None,
    folds: int = 2,
    resamples: int = 400,
    confidence: float = 0.95,
    seed: int = 0,
    block_rows: int | None = None,
    progress: bool = False,
) -> Calibration:
    """Find the distance threshold of a target false accept rate, and how well it holds for each class.

    far         target share of accepted negative pairs
    geometry    distances 'cosine' (Euclidean between unit vectors) or 'euclidean' (between the vectors themselves)
    members     the data set of each row: adds the rates of the pairs inside each data set
    folds       parts of the classes; each is evaluated at the threshold of the others
    resamples   draws of the classes, with replacement, for the interval of the threshold
    confidence  of the interval, and of the bounds that separate violations from noise, for all classes at once
    seed        of the folds and the resampling

    A class's negative pairs are those with exactly one end in it.
    """
    _check_options(far, geometry, folds, resamples, confidence)
    sets = prepare_sets(embeddings, labels, geometry=geometry)
    how: dict[str, Any] = {"block_rows": block_rows, "progress": progress}
    everything = pair_distances(sets, closest_share=SEARCHED_FACTOR * far, **how)
    _check_support(everything, far, "")
    point = tar_at_far(everything, far)
    data_sets = None if members is None else convert_labels(members, "members", len(sets.queries))

    held_out = _count_held_out(sets, data_sets, far, folds, seed, **how)
    options = {
        "geometry": geometry,
        "folds": folds,
        "resamples": resamples,
        "confidence": confidence,
        "seed": seed,
        "members": members is not None,
    }
    interval, resampled = threshold_interval(everything, far, resamples, confidence, seed)
    one_of_several = 1 - (1 - confidence) / max(1, len(held_out.by_data_set))
    return Calibration(
        far=far,
        threshold=point.threshold,
        interval=interval,
        resampled=resampled,
        fitted=pooled_rates(class_counts(everything, point.threshold), far, confidence),
        held_out=pooled_rates(np.concatenate(held_out.by_fold), far, confidence),
        fold_thresholds=tuple(held_out.thresholds),
        classes=rates_by_class(held_out.by_class, far, confidence),
        data_sets={
            name: pooled_rates(np.concatenate(counts), far, one_of_several)
            for name, counts in held_out.by_data_set.items()
        },
        fingerprint=data_fingerprint(embeddings, labels),
        samples=len(sets.queries),
        dimension=sets.queries.shape[1],
        options=options,
    )


@dataclass
class HeldOutCounts:
    """Pair counts of held-out classes, see `class_counts`, each at the threshold of the other folds."""

    thresholds: list[float] = field(default_factory=list)
    by_fold: list[Floats] = field(default_factory=list)
    by_class: dict[int | str, Floats] = field(default_factory=dict)
    by_data_set: dict[int | str, list[Floats]] = field(default_factory=dict)


def _count_held_out(
    sets: LabelledSets, data_sets: LabelArray | None, far: float, folds: int, seed: int, **how: Any
) -> HeldOutCounts:
    fold_of_class = assign_folds(sets, folds, seed)
    fold_of_row = fold_of_class[sets.query_classes.cpu().numpy()]
    inside = [_distances_inside(sets, fold_of_row == fold, **how) for fold in range(folds)]
    found = HeldOutCounts()
    for fold, held_out in enumerate(inside):
        # With two folds, the pairs of one calibrate the other.
        fitting = inside[1 - fold] if folds == 2 else _distances_inside(sets, fold_of_row != fold, **how)
        _check_support(fitting, far, f", the classes of {folds - 1} of {folds} folds")
        threshold = tar_at_far(fitting, far).threshold
        found.thresholds.append(threshold)
        found.by_fold.append(class_counts(held_out, threshold))
        names = [sets.class_labels[number] for number in np.flatnonzero(fold_of_class == fold)]
        found.by_class |= dict(zip(names, found.by_fold[-1], strict=True))
        for name in [] if data_sets is None else np.unique(data_sets).tolist():
            within = _distances_inside(sets, (fold_of_row == fold) & (data_sets == name), **how)
            found.by_data_set.setdefault(name, []).append(class_counts(within, threshold))
    return found


def data_fingerprint(embeddings: EmbeddingsLike, labels: LabelsLike) -> str:
    """SHA-256 of the values of the embeddings and the labels, with their types and shapes."""
    vectors = convert_embeddings(embeddings, "embeddings").cpu().contiguous().numpy()
    names = convert_labels(labels, "labels", len(vectors))
    digest = hashlib.sha256()
    digest.update(f"{vectors.dtype.str} {vectors.shape}\n".encode())
    digest.update(np.ascontiguousarray(vectors).data)
    # Strings by their characters: the item size of numpy's array depends on the longest.
    digest.update(f"\n{names.dtype.kind}\n".encode())
    digest.update("\n".join(names.tolist()).encode() if names.dtype.kind == "U" else np.ascontiguousarray(names).data)
    return digest.hexdigest()


def assign_folds(sets: LabelledSets, folds: int, seed: int) -> Integers:
    """The fold of each class, (C,): shuffled by the seed, then in turn."""
    classes = len(sets.class_labels)
    if classes < 2 * folds:
        raise EquimetricError(
            f"{classes} classes cannot be split into {folds} folds of at least two; give more classes, or fewer folds"
        )
    shuffled = np.random.default_rng(derive_seed(seed, "folds of classes")).permutation(classes)
    fold = np.empty(classes, np.int64)
    fold[shuffled] = np.arange(classes) % folds
    return fold


def _distances_inside(sets: LabelledSets, rows: NDArray[np.bool_], **how: Any) -> PairDistances:
    """The distances inside some rows; class labels are the class numbers of the whole set."""
    chosen = torch.from_numpy(rows).to(sets.queries.device)
    try:
        part = prepare_sets(sets.queries[chosen], sets.query_classes[chosen], geometry=sets.geometry)
    except EquimetricError as error:
        raise EquimetricError(
            f"a held-out part of {int(rows.sum())} samples cannot be evaluated: {error}; give more samples per class, "
            "or fewer folds"
        ) from error
    return pair_distances(part, **how)


def _check_options(far: float, geometry: str, folds: int, resamples: int, confidence: float) -> None:
    if not 0 < far < 1:
        raise EquimetricError(f"far is {far}; give a false accept rate between 0 and 1")
    if geometry not in ("cosine", "euclidean"):
        raise unknown_name("geometry", geometry, ["cosine", "euclidean"])
    if folds < 2:
        raise EquimetricError(f"folds is {folds}; held-out classes need at least 2")
    if resamples < 1:
        raise EquimetricError(f"resamples is {resamples}; give at least 1")
    if not 0 < confidence < 1:
        raise EquimetricError(f"confidence is {confidence}; give a number between 0 and 1, such as 0.95")


def _check_support(distances: PairDistances, far: float, where: str) -> None:
    needed = math.ceil(LEAST_ACCEPTED / far)
    if distances.negatives < needed:
        samples = len(distances.sets.queries)
        wanted = math.ceil(samples * math.sqrt(needed / distances.negatives))
        raise EquimetricError(
            f"a false accept rate of {far:g} needs at least {needed} negative pairs, so that {LEAST_ACCEPTED} false "
            f"accepts are expected; there are {distances.negatives} among {samples} samples{where}: give about "
            f"{wanted} samples instead of {samples}, or a larger far"
        )
