"""One threshold for everybody, with what it is worth: `calibrate`.

The threshold is the largest at which no more than the wanted share of all negative pairs is accepted. What it will do
to classes never seen is measured on classes held out: those of a fold are judged at the threshold of the other folds.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.distances import PairDistances, pair_distances
from equimetric.evaluation.inputs import (
    Geometry,
    GivenEmbeddings,
    GivenLabels,
    LabelledSets,
    as_embeddings,
    as_labels,
    labelled_sets,
)
from equimetric.evaluation.pair_counts import Closest
from equimetric.evaluation.verification import tar_at_far
from equimetric.files import write_atomically
from equimetric.seeding import derive_seed

__all__ = ["Calibration", "Rates", "calibrate", "data_fingerprint"]

Floats = NDArray[np.float64]
Weights = NDArray[np.int64]
SCHEMA = "equimetric.calibration/1"
LEAST_ACCEPTED = 10
"""False accepts that must be expected for a rate to be estimated: 10 ± √10 is a third either way."""
CLASS_NAMES_SHOWN = 5
SEARCHED_FACTOR, LEAST_SEARCHED_FACTOR = 4.0, 1.5
"""Resampled thresholds are sought at false accept rates up to 4 times the wanted one; 1.5 times are enough for many."""
SEARCHED_POINTS = 257


@dataclass(frozen=True)
class Rates:
    """Accepted negatives and rejected positives of held-out pairs, of one class, one data set or all of them.

    far, frr   NaN without such pairs
    far_bound  lower confidence bound of the false accept rate: of a class as if its pairs were drawn one by one
               (Wilson), of several classes together from how much these differ
    """

    far: float
    frr: float
    negatives: int
    positives: int
    far_bound: float
    wanted_far: float

    @property
    def exceeds(self) -> bool:
        """Whether the false accept rate is above the wanted one."""
        return self.far > self.wanted_far

    @property
    def violates(self) -> bool:
        """Whether the false accept rate is above the wanted one by more than noise."""
        return self.far_bound > self.wanted_far

    def to_dict(self) -> dict[str, Any]:
        """In plain types; None for what is undefined."""
        return {
            "far": _or_none(self.far),
            "frr": _or_none(self.frr),
            "negatives": self.negatives,
            "positives": self.positives,
            "far_bound": _or_none(self.far_bound),
            "exceeds": self.exceeds,
            "violates": self.violates,
        }


@dataclass(frozen=True, repr=False, eq=False)
class Calibration:
    """A threshold, how certain it is, and what it does to classes that had no say in it.

    threshold  pairs at a smaller distance are accepted as the same
    interval   of the threshold, had other classes been drawn
    resampled  what that was found from: `pairs` one by one, or to first order from the `class counts`
    fitted     FAR and FRR at the threshold on the data it was found on
    held_out   FAR and FRR of held-out pairs, each at the threshold of the other folds
    classes    the same by class, of all classes with negative pairs in their fold
    data_sets  the same by data set, where `members` were given
    """

    far: float
    threshold: float
    interval: tuple[float, float]
    resampled: str
    fitted: Rates
    held_out: Rates
    fold_thresholds: tuple[float, ...]
    classes: Mapping[int | str, Rates]
    data_sets: Mapping[int | str, Rates]
    fingerprint: str
    samples: int
    dimension: int
    options: Mapping[str, Any]

    @property
    def violations(self) -> dict[int | str, Rates]:
        """Classes whose held-out false accept rate is above the wanted one by more than noise, worst first."""
        return _worst_first({name: rates for name, rates in self.classes.items() if rates.violates})

    @property
    def exceedances(self) -> dict[int | str, Rates]:
        """Classes whose held-out false accept rate is above the wanted one, be it by chance; worst first."""
        return _worst_first({name: rates for name, rates in self.classes.items() if rates.exceeds})

    @property
    def data_set_violations(self) -> dict[int | str, Rates]:
        """Data sets whose held-out false accept rate is above the wanted one by more than noise, worst first."""
        return _worst_first({name: rates for name, rates in self.data_sets.items() if rates.violates})

    def worst(self, count: int = 10) -> dict[int | str, Rates]:
        """The classes of the largest held-out false accept rate."""
        return dict(list(_worst_first(self.classes).items())[:count])

    def certificate(self) -> dict[str, Any]:
        """All that is needed to say what was calibrated on what, in plain types."""
        return {
            "schema": SCHEMA,
            "equimetric": version("equimetric"),
            "data": {
                "sha256": self.fingerprint,
                "samples": self.samples,
                "dimension": self.dimension,
                "classes": len(self.classes),
            },
            "options": dict(self.options),
            "wanted_far": self.far,
            "threshold": self.threshold,
            "threshold_interval": list(self.interval),
            "threshold_interval_from": self.resampled,
            "accepts": "distance < threshold",
            "fitted": self.fitted.to_dict(),
            "held_out": self.held_out.to_dict(),
            "fold_thresholds": list(self.fold_thresholds),
            "worst_classes": _listed(self.worst()),
            "violations": _listed(self.violations),
            "exceedances": _listed(self.exceedances),
            "data_sets": _listed(self.data_sets),
            "data_set_violations": _listed(self.data_set_violations),
        }

    def save(self, file: str | Path) -> None:
        """Write the certificate as JSON."""
        text = json.dumps(self.certificate(), indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(Path(file), text + "\n")

    def __repr__(self) -> str:
        low, high = self.interval
        confidence, folds = self.options["confidence"], self.options["folds"]
        lines = [
            f"Calibration for FAR {self.far:g}: accept distances below {self.threshold:.6g}",
            f"  threshold  {low:.6g} … {high:.6g} ({confidence:.0%}, classes resampled)",
            f"  fitted     FAR {self.fitted.far:.3g}, FRR {self.fitted.frr:.3g}",
            f"  held out   FAR {self.held_out.far:.3g}, FRR {self.held_out.frr:.3g} ({folds} class-disjoint folds)",
            f"  classes    {len(self.exceedances)} of {len(self.classes)} above the wanted FAR, "
            f"{len(self.violations)} by more than noise{_some_names(self.violations)}",
        ]
        if self.data_sets:
            violations = self.data_set_violations
            lines.append(f"  data sets  {len(violations)} of {len(self.data_sets)} violate it{_some_names(violations)}")
        return "\n".join(lines)


def calibrate(
    embeddings: GivenEmbeddings,
    labels: GivenLabels,
    far: float = 1e-3,
    *,
    geometry: Geometry = "cosine",
    members: GivenLabels | None = None,
    folds: int = 2,
    resamples: int = 400,
    confidence: float = 0.95,
    seed: int = 0,
    block_rows: int | None = None,
    progress: bool = False,
) -> Calibration:
    """The distance threshold of a wanted false accept rate, and what it is worth on other classes.

    far         wanted share of accepted negative pairs
    geometry    distances 'cosine' (Euclidean between unit vectors) or 'euclidean' (between the vectors as they are)
    members     the data set of each row: rates are then also given for the pairs inside each data set
    folds       parts of the classes; those of each are judged at the threshold that the others give
    resamples   how often the classes are drawn anew, with replacement, for the threshold's interval
    confidence  of the interval, and of the bounds by which a violation is told from noise: for all classes at once
    seed        of the folds and the resampling

    A class's negative pairs are those with exactly one end in it.
    """
    _check(far, geometry, folds, resamples, confidence)
    sets = labelled_sets(embeddings, labels, geometry=geometry)
    how: dict[str, Any] = {"block_rows": block_rows, "progress": progress}
    everything = pair_distances(sets, closest_share=SEARCHED_FACTOR * far, **how)
    _check_support(everything, far, "")
    point = tar_at_far(everything, far)
    data_sets = None if members is None else as_labels(members, "members", len(sets.queries))

    fold_of_class = _folds(sets, folds, seed)
    fold_of_row = fold_of_class[sets.query_classes.cpu().numpy()]
    inside = [_distances_of(sets, fold_of_row == fold, **how) for fold in range(folds)]
    by_fold: list[Floats] = []
    by_class: dict[int | str, Floats] = {}
    by_data_set: dict[int | str, list[Floats]] = {}
    thresholds = []
    for fold, held_out in enumerate(inside):
        # Of two folds, the pairs of the one are the calibration of the other.
        fitting = inside[1 - fold] if folds == 2 else _distances_of(sets, fold_of_row != fold, **how)
        _check_support(fitting, far, f", the classes of {folds - 1} of {folds} folds")
        threshold = tar_at_far(fitting, far).threshold
        thresholds.append(threshold)
        by_fold.append(_counts(held_out, threshold))
        names = [sets.class_labels[number] for number in np.flatnonzero(fold_of_class == fold)]
        by_class |= dict(zip(names, by_fold[-1], strict=True))
        for name in [] if data_sets is None else np.unique(data_sets).tolist():
            within = _distances_of(sets, (fold_of_row == fold) & (data_sets == name), **how)
            by_data_set.setdefault(name, []).append(_counts(within, threshold))

    options = {
        "geometry": geometry,
        "folds": folds,
        "resamples": resamples,
        "confidence": confidence,
        "seed": seed,
        "members": members is not None,
    }
    interval, resampled = _interval(everything, far, resamples, confidence, seed)
    one_of_several = 1 - (1 - confidence) / max(1, len(by_data_set))
    return Calibration(
        far=far,
        threshold=point.threshold,
        interval=interval,
        resampled=resampled,
        fitted=_rates_together(_counts(everything, point.threshold), far, confidence),
        held_out=_rates_together(np.concatenate(by_fold), far, confidence),
        fold_thresholds=tuple(thresholds),
        classes=_rates_of_each(by_class, far, confidence),
        data_sets={
            name: _rates_together(np.concatenate(counts), far, one_of_several) for name, counts in by_data_set.items()
        },
        fingerprint=data_fingerprint(embeddings, labels),
        samples=len(sets.queries),
        dimension=sets.queries.shape[1],
        options=options,
    )


def data_fingerprint(embeddings: GivenEmbeddings, labels: GivenLabels) -> str:
    """SHA-256 of the embeddings as numbers and of the labels, with their types and shapes."""
    vectors = as_embeddings(embeddings, "embeddings").cpu().contiguous().numpy()
    names = as_labels(labels, "labels", len(vectors))
    digest = hashlib.sha256()
    digest.update(f"{vectors.dtype.str} {vectors.shape}\n".encode())
    digest.update(np.ascontiguousarray(vectors).data)
    # Strings go in as their characters: the width of numpy's array of them depends on the longest.
    digest.update(f"\n{names.dtype.kind}\n".encode())
    digest.update("\n".join(names.tolist()).encode() if names.dtype.kind == "U" else np.ascontiguousarray(names).data)
    return digest.hexdigest()


def _counts(distances: PairDistances, threshold: float) -> Floats:
    """(accepted negatives, accepted positives, negatives, positives) of every class, (C, 4)."""
    accepted = distances.accepted_of_classes([threshold], strictly=True)
    return np.stack(
        [
            accepted.negative[:, 0],
            accepted.positive[:, 0],
            distances.negatives_of_class.astype(np.float64),
            distances.positives_of_class.astype(np.float64),
        ],
        axis=1,
    )


def _rates_of_each(counts: Mapping[int | str, Floats], far: float, confidence: float) -> dict[int | str, Rates]:
    """Rates of single classes, with bounds that hold for all of them together: each has its part of the risk."""
    each = 1 - (1 - confidence) / max(1, len(counts))
    return {
        name: _rates(some, far, _wilson_lower_bound(some[0], some[2], each) if some[2] else math.nan)
        for name, some in counts.items()
    }


def _rates_together(counts: Floats, far: float, confidence: float) -> Rates:
    """Rates of all pairs of some classes, (C, 4); the bound is from how much the classes differ.

    Drawn w_c times each, they would give FAR = (Σ w_c a_c − A) / (Σ w_c n_c − N), see `_interval`; its derivative by
    w_c, (a_c − FAR·n_c) / N, is what class c contributes to the variance.
    """
    accepted, _, negatives, _ = together = counts.sum(axis=0) / [2, 1, 2, 1]  # a negative pair is of two classes
    rate = accepted / negatives
    influence = (counts[:, 0] - rate * counts[:, 2]) / negatives
    error = math.sqrt(float(influence @ influence) * len(counts) / max(1, len(counts) - 1))
    return _rates(together, far, max(0.0, rate - NormalDist().inv_cdf(confidence) * error))


def _rates(counts: Floats, far: float, far_bound: float) -> Rates:
    accepted, accepted_positives, negatives, positives = (float(count) for count in counts)
    return Rates(
        far=accepted / negatives if negatives else math.nan,
        frr=1 - accepted_positives / positives if positives else math.nan,
        negatives=round(negatives),
        positives=round(positives),
        far_bound=float(far_bound),
        wanted_far=far,
    )


def _wilson_lower_bound(accepted: float, trials: float, confidence: float) -> float:
    """One-sided: (p + z²/2n − z √(p(1−p)/n + z²/4n²)) / (1 + z²/n), where p = accepted / n."""
    z = NormalDist().inv_cdf(confidence)
    share = accepted / trials
    spread = z * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    return max(0.0, (share + z**2 / (2 * trials) - spread) / (1 + z**2 / trials))


def _interval(
    distances: PairDistances, far: float, resamples: int, confidence: float, seed: int
) -> tuple[tuple[float, float], str]:
    """Percentiles of the threshold under resampling of classes with replacement, and what was resampled.

    A pair of classes a and b that are drawn w_a and w_b times counts w_a·w_b times. Where too few of the closest pairs
    were kept one by one for that, w_a + w_b − 1 is taken for it, its first order: all that is needed of a class then is
    how many of its negative pairs each of some thresholds accepts.
    """
    closest = distances.closest_negatives(math.ceil(SEARCHED_FACTOR * far * distances.negatives))
    if len(closest.distance) >= min(distances.negatives, LEAST_SEARCHED_FACTOR * far * distances.negatives):
        threshold_of, resampled = _resampled_pairs(distances, closest, far), "pairs"
    else:
        threshold_of, resampled = _resampled_class_counts(distances, far), "class counts"
    generator = np.random.default_rng(derive_seed(seed, "resampled classes"))
    classes = distances.classes
    draws = (np.bincount(generator.integers(0, classes, classes), minlength=classes) for _ in range(resamples))
    found = [threshold_of(weights) for weights in draws if np.count_nonzero(weights) > 1]
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return (float(low), float(high)), resampled


def _resampled_pairs(distances: PairDistances, closest: Closest, far: float) -> Callable[[Weights], float]:
    sizes = np.bincount(distances.sets.query_classes.cpu().numpy(), minlength=distances.classes)

    def threshold(weights: Weights) -> float:
        samples = weights * sizes
        negatives = (samples.sum() ** 2 - (samples**2).sum()) / 2
        counted = (weights[closest.first] * weights[closest.second]).cumsum()
        place = np.searchsorted(counted, math.floor(far * negatives + 1e-9), "right")
        return float(closest.distance[min(place, len(counted) - 1)])

    return threshold


def _resampled_class_counts(distances: PairDistances, far: float) -> Callable[[Weights], float]:
    factors = np.geomspace(1 / SEARCHED_FACTOR, SEARCHED_FACTOR, SEARCHED_POINTS)
    ranks = np.minimum(np.floor(far * distances.negatives * factors), distances.negatives - 1)
    thresholds = np.unique(distances.negative_distance(ranks))
    accepted = distances.accepted_of_classes(thresholds, strictly=True).negative
    overall = distances.accepted(thresholds, strictly=True).negative

    def threshold(weights: Weights) -> float:
        negatives = weights @ distances.negatives_of_class - distances.negatives
        rates = np.maximum.accumulate((weights @ accepted - overall) / negatives)
        return float(thresholds[max(0, int(np.searchsorted(rates, far, "right")) - 1)])

    return threshold


def _folds(sets: LabelledSets, folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each class, (C,): a seeded shuffle dealt out in turn."""
    classes = len(sets.class_labels)
    if classes < 2 * folds:
        raise EquimetricError(
            f"{classes} classes cannot be split into {folds} folds of at least two; give more classes, or fewer folds"
        )
    shuffled = np.random.default_rng(derive_seed(seed, "folds of classes")).permutation(classes)
    fold = np.empty(classes, np.int64)
    fold[shuffled] = np.arange(classes) % folds
    return fold


def _distances_of(sets: LabelledSets, rows: NDArray[np.bool_], **how: Any) -> PairDistances:
    """The distances inside some rows; class labels are then the class numbers of the whole."""
    chosen = torch.from_numpy(rows).to(sets.queries.device)
    try:
        part = labelled_sets(sets.queries[chosen], sets.query_classes[chosen], geometry=sets.geometry)
    except EquimetricError as error:
        raise EquimetricError(
            f"a held-out part of {int(rows.sum())} samples cannot be judged: {error}; give more samples per class, "
            "or fewer folds"
        ) from error
    return pair_distances(part, **how)


def _check(far: float, geometry: str, folds: int, resamples: int, confidence: float) -> None:
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


def _worst_first(rates: Mapping[int | str, Rates]) -> dict[int | str, Rates]:
    return dict(sorted(rates.items(), key=lambda item: -item[1].far if item[1].negatives else math.inf))


def _listed(rates: Mapping[int | str, Rates]) -> list[dict[str, Any]]:
    return [{"name": name, **some.to_dict()} for name, some in rates.items()]


def _some_names(rates: Mapping[int | str, Rates]) -> str:
    if not rates:
        return ""
    names = ", ".join(f"{name} ({some.far:.2g})" for name, some in list(rates.items())[:CLASS_NAMES_SHOWN])
    return f": {names}{', …' if len(rates) > CLASS_NAMES_SHOWN else ''}"


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
