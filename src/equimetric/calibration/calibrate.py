"""`calibrate`: one distance threshold for all classes, and how well it holds for each class.

The threshold is chosen on all pairs, for a false accept rate, a false reject rate or the least cost. Its effect on
unknown classes is measured on held-out ones: the classes of a fold are evaluated at the threshold of the other folds.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equimetric.calibration.class_bounds import RateEstimates, estimate_far, estimate_frr
from equimetric.calibration.cohort import CertifiedCohort, require_other_classes, score_histogram
from equimetric.calibration.drift import drift_reference
from equimetric.calibration.new_classes import bound_new_classes
from equimetric.calibration.rates import ErrorRates, TargetRate, class_counts, pooled_rates, rates_by_class
from equimetric.calibration.result import Calibration
from equimetric.calibration.targets import Target, make_target, operating_point
from equimetric.calibration.threshold_interval import searched_share, threshold_interval
from equimetric.calibration.two_way_rates import accepted_shares
from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.class_names import name_classes
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.inputs import (
    EmbeddingsLike,
    LabelArray,
    LabelsLike,
    convert_embeddings,
    convert_labels,
    prepare_sets,
)
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.evaluation.engine.sets import GeometryName, LabelledSets
from equimetric.evaluation.metrics.verification import distance_histogram
from equimetric.intervals import check_confidence
from equimetric.seeding import derive_seed

__all__ = ["assign_folds", "calibrate", "data_fingerprint", "select_rows"]


def calibrate(
    embeddings: EmbeddingsLike,
    labels: LabelsLike,
    far: float | None = None,
    *,
    frr: float | None = None,
    cost: Sequence[float] | None = None,
    geometry: GeometryName = "cosine",
    cohort: Cohort | None = None,
    members: LabelsLike | None = None,
    class_names: Sequence[str] | Mapping[int, str] | None = None,
    model: str | None = None,
    preprocessing: str | None = None,
    folds: int = 2,
    resamples: int = 400,
    confidence: float = 0.95,
    seed: int = 0,
    block_rows: int | None = None,
    progress: bool = False,
) -> Calibration:
    """Find the distance threshold of a target, and how well it holds for each class.

    far            target share of accepted negative pairs; 1e-3 unless another target is given
    frr            target share of rejected positive pairs
    cost           (of a false accept, of a false reject, prior): the least expected cost, where `prior` is the
                   probability that a pair is of one class
    geometry       distances 'cosine' (Euclidean between unit vectors) or 'euclidean' (between the vectors themselves)
    cohort         other classes by which cosines are normalised: the threshold is then of the score, and pairs with a
                   larger one are accepted
    members        the data set of each row: adds the rates of the pairs inside each data set
    class_names    names of the classes, where labels are numbers
    model          sha256 of the weights that made the embeddings, for the certificate
    preprocessing  how images were brought to the model, for the certificate
    folds          parts of the classes; each is evaluated at the threshold of the others
    resamples      draws of the classes, with replacement, for the interval of the threshold
    confidence     of the interval, of the bounds for new classes, and of the bounds that separate violations from
                   noise, for all classes at once
    seed           of the folds and the resampling

    A class's negative pairs are those with exactly one end in it.
    """
    target = make_target(far, frr, cost)
    _check_options(geometry, folds, resamples, confidence)
    sets = prepare_sets(embeddings, labels, geometry=geometry, cohort=cohort)
    if cohort is not None:
        require_other_classes(cohort, sets)
    names = name_classes(sets.class_labels, class_names)
    scan_options: dict[str, Any] = {"block_rows": block_rows, "progress": progress}
    distances = pair_distances(sets, closest_share=searched_share(target), **scan_options)
    target.check_support(distances, "")
    point = operating_point(distances, target.threshold(distances))
    target_rate = target.rate(point)
    data_sets = None if members is None else convert_labels(members, "members", len(sets.queries))

    held_out = _hold_out(sets, data_sets, target, folds, seed, **scan_options)
    interval, resampled = threshold_interval(distances, target, point.threshold, resamples, confidence, seed)
    counts, histogram = class_counts(distances, point.threshold), distance_histogram(distances)
    # With a cohort, distances are negated scores.
    uses_scores = cohort is not None
    return Calibration(
        target=target,
        target_rate=target_rate,
        threshold=-point.threshold if uses_scores else point.threshold,
        interval=(-interval[1], -interval[0]) if uses_scores else interval,
        resampled=resampled,
        fitted=pooled_rates(counts, target_rate, confidence),
        held_out=pooled_rates(np.concatenate(held_out.counts), target_rate, confidence),
        new_classes=bound_new_classes(counts, confidence),
        fold_thresholds=tuple(-threshold if uses_scores else threshold for threshold in held_out.thresholds),
        classes=held_out.rates_by_class(names, target_rate, confidence),
        data_sets=held_out.rates_by_data_set(target_rate, confidence),
        histogram=score_histogram(histogram) if uses_scores else histogram,
        reference=drift_reference(sets, distances, seed),
        fingerprint=data_fingerprint(embeddings, labels),
        samples=len(sets.queries),
        dimension=int(embeddings.shape[1]),
        options={
            "geometry": geometry,
            "folds": folds,
            "resamples": resamples,
            "confidence": confidence,
            "seed": seed,
            "members": members is not None,
        },
        date=datetime.now(UTC).date().isoformat(),
        model=model,
        preprocessing=preprocessing,
        cohort=None if cohort is None else CertifiedCohort.from_cohort(cohort),
    )


@dataclass
class HeldOut:
    """Held-out classes, fold by fold, each at the threshold of the other folds.

    counts    pair counts of the classes, see `class_counts`
    far, frr  rates of the classes and their variances
    """

    thresholds: list[float] = field(default_factory=list)
    classes: list[Integers] = field(default_factory=list)
    counts: list[Floats] = field(default_factory=list)
    far: list[RateEstimates] = field(default_factory=list)
    frr: list[RateEstimates] = field(default_factory=list)
    by_data_set: dict[int | str, list[Floats]] = field(default_factory=dict)

    def rates_by_class(
        self, names: Sequence[int | str], target_rate: TargetRate, confidence: float
    ) -> dict[int | str, ErrorRates]:
        """Rates of all classes by name, in the order of the folds."""
        classes = [names[index] for index in np.concatenate(self.classes)]
        far, frr = RateEstimates.join(self.far), RateEstimates.join(self.frr)
        return rates_by_class(classes, np.concatenate(self.counts), far, frr, target_rate, confidence)

    def rates_by_data_set(self, target_rate: TargetRate, confidence: float) -> dict[int | str, ErrorRates]:
        """Rates of the pairs inside each data set, with bounds that hold for all of them at once (Bonferroni)."""
        level = 1 - (1 - confidence) / max(1, len(self.by_data_set))
        return {
            name: pooled_rates(np.concatenate(counts), target_rate, level) for name, counts in self.by_data_set.items()
        }


def _hold_out(
    sets: LabelledSets, data_sets: LabelArray | None, target: Target, folds: int, seed: int, **scan_options: Any
) -> HeldOut:
    fold_of_class = assign_folds(sets, folds, seed)
    fold_of_row = fold_of_class[sets.query_classes.cpu().numpy()]
    parts = [select_rows(sets, fold_of_row == fold) for fold in range(folds)]
    distances_by_fold = [pair_distances(part, **scan_options) for part in parts]
    held_out = HeldOut()
    for fold, (part, fold_distances) in enumerate(zip(parts, distances_by_fold, strict=True)):
        # With two folds, the pairs of one calibrate the other.
        others = fold_of_row != fold
        fitting = (
            distances_by_fold[1 - fold] if folds == 2 else pair_distances(select_rows(sets, others), **scan_options)
        )
        target.check_support(fitting, f", because one of {folds} folds of the classes is held out")
        threshold = target.threshold(fitting)
        shares = accepted_shares(part, threshold, **scan_options)
        held_out.thresholds.append(threshold)
        held_out.classes.append(np.flatnonzero(fold_of_class == fold))
        held_out.counts.append(class_counts(fold_distances, threshold))
        held_out.far.append(estimate_far(shares))
        held_out.frr.append(estimate_frr(shares))
        for name in [] if data_sets is None else np.unique(data_sets).tolist():
            within = pair_distances(select_rows(sets, (fold_of_row == fold) & (data_sets == name)), **scan_options)
            held_out.by_data_set.setdefault(name, []).append(class_counts(within, threshold))
    return held_out


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


def select_rows(sets: LabelledSets, rows: NDArray[np.bool_]) -> LabelledSets:
    """Some rows of one set."""
    try:
        return sets.select(torch.from_numpy(rows).to(sets.queries.device))
    except EquimetricError as error:
        raise EquimetricError(
            f"a held-out part of {int(rows.sum())} samples cannot be evaluated: {error}; give more samples per class, "
            "or fewer folds"
        ) from error


def _check_options(geometry: str, folds: int, resamples: int, confidence: float) -> None:
    if geometry not in ("cosine", "euclidean"):
        raise unknown_name("geometry", geometry, ["cosine", "euclidean"])
    if folds < 2:
        raise EquimetricError(f"folds is {folds}; held-out classes need at least 2")
    if resamples < 1:
        raise EquimetricError(f"resamples is {resamples}; give at least 1")
    check_confidence(confidence)
