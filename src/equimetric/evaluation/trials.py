"""`evaluate_trials`: verification on exactly the pairs of a trial list, with intervals.

Pairs share samples and classes, so these are resampled, not the pairs: with labels whole classes, each with all its
trials, else single samples. A trial between two of them that are drawn v and w times counts v·w times, one inside a
class w times.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.arrays import Floats, Integers, RateInterval
from equimetric.evaluation.engine.inputs import (
    GEOMETRY_NAMES,
    EmbeddingsLike,
    LabelsLike,
    convert_embeddings,
    convert_labels,
    prepare_sets,
)
from equimetric.evaluation.engine.sets import GeometryName
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.metrics.roc import MIN_ERRORS, check_rate
from equimetric.evaluation.resampling.bootstrap import check_resampling, percentile_interval
from equimetric.evaluation.trial_lists import TrialList, TrialsLike, read_trials
from equimetric.evaluation.trial_rates import TrialCurve, weighted_rates
from equimetric.seeding import derive_seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TrialEvaluation", "TrialPoint", "evaluate_trials"]


@dataclass(frozen=True)
class TrialPoint:
    """The rates of the listed pairs where those at a distance, or negated score, below the threshold are accepted."""

    threshold: float
    far: float
    frr: float
    far_interval: RateInterval | None
    frr_interval: RateInterval | None


@dataclass(frozen=True, repr=False, eq=False)
class TrialEvaluation(Mapping[str, float]):
    """AUC, EER and TAR at false accept rates of the listed pairs: trials["eer"], trials.intervals["eer"].

    scores      name → value
    intervals   name → ends of the percentile interval
    resampled   `classes` or `samples`: what was drawn for the intervals
    distance    (P,) of every trial, in the order of the list; with a cohort the negated score
    same        (P,) whether it is of one class
    """

    scores: Mapping[str, float]
    intervals: Mapping[str, RateInterval]
    resampled: str
    units: int
    distance: Floats
    same: NDArray[np.bool_]
    geometry: str
    confidence: float
    draws: int
    _weights: Callable[[], Iterator[Floats]]

    def at_threshold(self, threshold: float) -> TrialPoint:
        """FAR and FRR where pairs at a distance, with a cohort a negated score, below this are accepted."""
        accepted = self.distance < threshold
        ones = np.ones(len(self.same))
        far, frr = weighted_rates(accepted, self.same, ones)
        drawn = np.array([weighted_rates(accepted, self.same, weights) for weights in self._weights()]).reshape(-1, 2)
        ends = [_interval(values, self.confidence) for values in drawn.T]
        return TrialPoint(float(threshold), far, frr, *ends)

    def calibrate(self, far: float) -> TrialPoint:
        """The largest threshold whose FAR is at most this on exactly these pairs; there must be enough of them."""
        check_rate(far)
        negatives = int((~self.same).sum())
        if far * negatives < MIN_ERRORS:
            raise EquimetricError(
                f"a false accept rate of {far:g} needs {MIN_ERRORS} / {far:g} trials of different classes, so that "
                f"{MIN_ERRORS} false accepts are expected; the list has {negatives}: give a larger far or more"
            )
        return self.at_threshold(TrialCurve(self.distance, self.same).threshold_at_far(far))

    def plot(self) -> "Figure":
        """True against false accept rate."""
        from equimetric.evaluation.plots import roc_figure

        far, tar = TrialCurve(self.distance, self.same).rates(np.ones(len(self.same)))
        names = [name for name in self if name.startswith("tar@far=")]
        return roc_figure(far, tar, marked={float(name.partition("=")[2]): self[name] for name in names})

    def to_dict(self) -> dict[str, Any]:
        """The summary in plain types, ready for JSON."""
        return {
            "metrics": dict(self.scores),
            "intervals": {name: list(interval) for name, interval in self.intervals.items()},
            "trials": len(self.same),
            "same": int(self.same.sum()),
            "resampled": self.resampled,
            "confidence": self.confidence,
            "geometry": self.geometry,
        }

    def __getitem__(self, name: str) -> float:
        return self.scores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        width = max(map(len, self.scores))
        lines = [
            f"Trials: {len(self.same)} pairs, {int(self.same.sum())} of one class ({self.geometry}); "
            f"{self.confidence:.0%} intervals, {self.units} {self.resampled} resampled"
        ]
        for name, value in self.scores.items():
            ends = self.intervals.get(name)
            interval_text = "" if ends is None else f"  ({ends[0]:.2%} … {ends[1]:.2%})"
            lines.append(f"  {name:<{width}}  {value:7.2%}{interval_text}")
        return "\n".join(lines)


def evaluate_trials(
    embeddings: EmbeddingsLike,
    ids: LabelsLike | None,
    trials: TrialsLike,
    *,
    labels: LabelsLike | None = None,
    far: float | Iterable[float] = (1e-2, 1e-3),
    geometry: GeometryName = "cosine",
    cohort: Cohort | None = None,
    confidence: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> TrialEvaluation:
    """Verify exactly the pairs of a trial list: AUC, EER, TAR at false accept rates.

    ids       N ids of the embeddings that the list names; None: it names row numbers from 0
    trials    a .csv or .parquet file with the columns id_a, id_b, same; these columns by name; or three arrays
    labels    N classes, to resample whole classes for the intervals; without them single samples are resampled
    far       false accept rates at which TAR is reported
    geometry  `cosine`, `euclidean`, `dot` or `hamming`
    cohort    other classes by which cosines are normalised; without `labels` all of it counts for every sample
    """
    check_resampling(confidence, draws)
    if geometry not in GEOMETRY_NAMES:
        raise unknown_name("geometry of a trial list", str(geometry), GEOMETRY_NAMES)
    fars = [check_rate(float(rate)) for rate in ([far] if isinstance(far, float | int) else far)]
    vectors = convert_embeddings(embeddings, "embeddings")
    trial_list = read_trials(trials, ids, len(vectors))
    units, resampled = _resampling_units(trial_list, labels, len(vectors))
    matrix = _similarities(vectors, labels, geometry, cohort)
    first, second = (torch.from_numpy(rows).to(matrix.device) for rows in (trial_list.first, trial_list.second))
    products = matrix.exact_products(first, second)[:, None]
    distance = matrix.distance(products, first)[:, 0].cpu().numpy()

    curve = TrialCurve(distance, trial_list.same)
    weights = _weight_draws(units, trial_list, resampled, draws, seed)
    names = ["auc", "eer", *(f"tar@far={rate:g}" for rate in fars)]
    drawn = np.array([curve.scores(trial_weights, fars) for trial_weights in weights()]).reshape(-1, len(names))
    ends = {name: _interval(values, confidence) for name, values in zip(names, drawn.T, strict=True)}
    return TrialEvaluation(
        scores=dict(zip(names, curve.scores(np.ones(len(distance)), fars), strict=True)),
        intervals={name: interval for name, interval in ends.items() if interval is not None},
        resampled=resampled,
        units=int(units.max()) + 1,
        distance=distance,
        same=trial_list.same,
        geometry=geometry if cohort is None else cohort.title,
        confidence=confidence,
        draws=draws,
        _weights=weights,
    )


def _similarities(
    vectors: Tensor, labels: LabelsLike | None, geometry: GeometryName, cohort: Cohort | None
) -> SimilarityMatrix:
    """The similarities of any two rows."""
    if cohort is None:
        # Any two classes: which pairs are compared is up to the list.
        return SimilarityMatrix.from_sets(prepare_sets(vectors, torch.arange(len(vectors)) // 2, geometry=geometry))
    cohort.require_cosine(geometry)
    cohort.warn_if_narrow()
    queries, items = cohort.extend(vectors, labels)
    return SimilarityMatrix(queries, items=items, geometry="dot")


def _interval(values: Floats, confidence: float) -> RateInterval | None:
    return percentile_interval(values, confidence) if len(values) > 1 else None


def _resampling_units(trial_list: TrialList, labels: LabelsLike | None, count: int) -> tuple[Integers, str]:
    """(N,) the index of the unit each row is drawn with, and its kind; −1 for rows that no trial names."""
    is_listed = np.isin(np.arange(count), np.concatenate([trial_list.first, trial_list.second]))
    unit_indices = np.full(count, -1)
    if labels is None:
        unit_indices[is_listed] = np.arange(is_listed.sum())
        return unit_indices, "samples"
    classes = convert_labels(labels, "labels", count)
    wrong = np.flatnonzero((classes[trial_list.first] == classes[trial_list.second]) != trial_list.same)
    if len(wrong):
        first_label, second_label = (classes[rows[wrong[0]]].item() for rows in (trial_list.first, trial_list.second))
        stated = "the same" if trial_list.same[wrong[0]] else "different"
        raise EquimetricError(
            f"trial {wrong[0]} says that its samples are of {stated} classes, but their labels are "
            f"{first_label!r} and {second_label!r}; correct the list or the labels"
        )
    unit_indices[is_listed] = np.unique(classes[is_listed], return_inverse=True)[1]
    return unit_indices, "classes"


def _weight_draws(
    units: Integers, trial_list: TrialList, resampled: str, draws: int, seed: int
) -> Callable[[], Iterator[Floats]]:
    """A function that gives the weights (P,) of the trials in each draw, the same ones whenever it is called."""
    first, second, count = units[trial_list.first], units[trial_list.second], int(units.max()) + 1
    within_class = trial_list.same & (resampled == "classes")

    def draw() -> Iterator[Floats]:
        generator = np.random.default_rng(derive_seed(seed, "trials"))
        for _ in range(draws):
            times = np.bincount(generator.integers(count, size=count), minlength=count).astype(np.float64)
            weights = np.where(within_class, times[first], times[first] * times[second])
            # Without a trial of one kind there is no rate.
            if weights[trial_list.same].any() and weights[~trial_list.same].any():
                yield weights

    return draw
