"""The threshold that each class would need for a target rate, beside the one they share.

Pairs closer than a threshold are accepted. For a false accept rate a class needs the largest threshold that accepts at
most that share of its negative pairs, for a false reject rate the smallest that rejects at most that share of its
positive ones. `threshold_gap` is how far these thresholds t_i lie from the common one t,

    gap = √(1/T Σ_i (t_i − t)²),

in units of distance; lower is better.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from equimetric.errors import EquimetricError
from equimetric.escaping import name_text
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.inputs import EmbeddingsLike, LabelsLike, prepare_sets
from equimetric.evaluation.engine.pair_distances import PairDistances, pair_distances
from equimetric.evaluation.engine.sets import GeometryName
from equimetric.evaluation.evidence import Detail, Evidence, Score
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.metrics.roc import class_rates, tar_at_far
from equimetric.evaluation.metrics.verification import NUMBER
from equimetric.evaluation.resampling.class_statistics import ClassStatistic
from equimetric.evaluation.result import Evaluation

__all__ = ["ClassThresholds", "class_thresholds", "find_class_thresholds"]

CLASSES_SHOWN = 10


@dataclass(frozen=True, repr=False, eq=False)
class ClassThresholds(Detail):
    """The threshold every class needs for a target rate, those first that the common one serves worst.

    kind            the target rate is a `far` or a `frr`
    target          the rate
    common          the threshold for all pairs
    classes         (T,) class labels; numbers (T,): their class numbers
    needed          (T,) the threshold of each class
    rates           (T,) its rate at the common threshold
    possible_error  (T,) of the needed threshold where pairs are counted in bins; else 0
    scored          whether thresholds are negated scores, of a cohort; texts show the scores
    """

    kind: Literal["far", "frr"]
    target: float
    common: float
    classes: tuple[int | str, ...]
    numbers: Integers
    needed: Floats
    rates: Floats
    possible_error: Floats
    scored: bool = False

    @property
    def gap(self) -> float:
        """Root mean square of the distance between the needed thresholds and the common one."""
        return math.sqrt(float(np.mean((self.needed - self.common) ** 2)))

    def rename_classes(self, names: Mapping[int | str, int | str]) -> "ClassThresholds":
        """The same with names in place of labels."""
        return replace(self, classes=tuple(names.get(label, label) for label in self.classes))

    def json_entries(self) -> dict[str, Any]:
        """One entry, with a row for every class."""
        return {f"class thresholds at {self.kind}={self.target:g}": self.to_dict()}

    def to_dict(self) -> dict[str, Any]:
        """All classes in plain types, worst first, ready for JSON."""
        columns = zip(
            self.classes, self.needed.tolist(), self.rates.tolist(), self.possible_error.tolist(), strict=True
        )
        return {
            "thresholds": "negated scores" if self.scored else "distances",
            "rate": self.kind,
            "target": self.target,
            "common_threshold": self.common,
            "gap": self.gap,
            "classes": [
                {"class": name, "threshold": needed, self.kind: rate, "possible_error": error}
                for name, needed, rate, error in columns
            ],
        }

    def __repr__(self) -> str:
        rate, sign = self.kind.upper(), -1.0 if self.scored else 1.0
        needed = sign * self.needed
        measure = "scores" if self.scored else "distances"
        names = [name_text(str(name)) for name in self.classes[:CLASSES_SHOWN]]
        width = max(5, *map(len, names))
        lines = [
            f"Thresholds for {rate} {self.target:g}, of {measure}: {sign * self.common:.4f} for all pairs; classes "
            f"need {needed.min():.4f} … {needed.max():.4f}",
            f"  {'class':<{width}}    needs  {rate} at the common one",
            *(
                f"  {name:<{width}}  {threshold:7.4f}  {share:.3g}"
                for name, threshold, share in zip(names, needed, self.rates, strict=False)
            ),
        ]
        more = len(self.classes) - len(names)
        error = float(self.possible_error.max())
        lines += [f"  … and {more} more classes"] if more else []
        return "\n".join([*lines, f"  each known to ±{error:.1g}"] if error else lines)


def class_thresholds(
    embeddings: EmbeddingsLike,
    labels: LabelsLike,
    gallery_embeddings: EmbeddingsLike | None = None,
    gallery_labels: LabelsLike | None = None,
    *,
    far: float | None = None,
    frr: float | None = None,
    geometry: GeometryName = "cosine",
    cohort: Cohort | None = None,
    block_rows: int | None = None,
    progress: bool = False,
) -> ClassThresholds:
    """Find the threshold that each class would need for a false accept rate `far`, or a false reject rate `frr`.

    With a `cohort`, thresholds are negated scores −s′ in place of distances.
    """
    if (far is None) == (frr is None):
        raise EquimetricError("class_thresholds takes one target rate: give either far or frr")
    sets = prepare_sets(embeddings, labels, gallery_embeddings, gallery_labels, geometry=geometry, cohort=cohort)
    distances = pair_distances(sets, block_rows=block_rows, progress=progress)
    return find_class_thresholds(distances, "frr" if far is None else "far", _check_rate(frr if far is None else far))


def find_class_thresholds(distances: PairDistances, kind: Literal["far", "frr"], target: float) -> ClassThresholds:
    """From the pair distances: see `ClassThresholds`."""
    positive = kind == "frr"
    pairs = distances.positives_by_class if positive else distances.negatives_by_class
    class_indices = np.flatnonzero(pairs)
    distance, error = distances.distance_by_class(_rank(pairs, kind, target), positive=positive)
    common = (
        float(_next_threshold(_positive_distance(distances, int(_rank(distances.positives, kind, target)))))
        if positive
        else tar_at_far(distances, target).threshold
    )
    needed = (_next_threshold(distance) if positive else distance)[class_indices]
    rates = class_rates(distances, common, strictly_below=True)
    share = (rates.frr if positive else rates.far)[class_indices]
    order = np.lexsort((class_indices, -needed if positive else needed))
    return ClassThresholds(
        kind,
        target,
        common,
        tuple(distances.sets.class_labels[index] for index in class_indices[order]),
        class_indices[order],
        needed[order],
        share[order],
        error[class_indices][order],
        scored="cohort" in distances.sets.compared_by,
    )


def _rank(pairs: Any, kind: str, target: float) -> Integers:
    """Rank, from 0, of the pair that bounds the threshold: the first negative too many, or the last positive needed."""
    allowed = np.floor(target * np.asarray(pairs) + 1e-9).astype(np.int64)
    return np.asarray(allowed if kind == "far" else np.maximum(np.asarray(pairs) - allowed - 1, 0))


def _next_threshold(distance: Any) -> Floats:
    """The smallest threshold that this distance is closer than."""
    return np.asarray(np.nextafter(distance, np.inf))


def _positive_distance(distances: PairDistances, rank: int) -> float:
    """The distance of the positive pair of that rank: the least within which more than `rank` pairs lie."""
    operating = distances.operating_distances
    first, last = 0, len(operating) - 1
    while first < last:
        middle = (first + last) // 2
        enough = float(distances.count_accepted(operating[middle]).positive) > rank
        first, last = (first, middle) if enough else (middle + 1, last)
    return float(operating[first])


def _check_rate(rate: float | None) -> float:
    if rate is None or not 0 < rate < 1:
        raise EquimetricError(f"the target rate is {rate}; give a number between 0 and 1, such as 0.01")
    return rate


def _resample_gap(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
    thresholds = evaluation.detail(ClassThresholds, metric.name)
    if thresholds is None:
        return None
    order = np.argsort(thresholds.numbers)
    squares = (thresholds.needed[order] - thresholds.common) ** 2
    return ClassStatistic(thresholds.numbers[order], lambda weights: np.sqrt(weights @ squares / weights.sum(axis=1)))


PARAMETERS: dict[str, Callable[[str], Any]] = {"kind": str, "rate": lambda text: _check_rate(float(text))}


@metric(
    "threshold_gap@far=F",
    needs_negatives=True,
    higher_is_better=False,
    pattern=rf"threshold_gap@(?P<kind>far|frr)=(?P<rate>{NUMBER})",
    parameters=PARAMETERS,
    examples=("threshold_gap@far=1e-2", "threshold_gap@frr=0.1"),
    collectors=(PairDistances,),
    resample=_resample_gap,
    percent=False,
)
def _threshold_gap(metric: Metric, evidence: Evidence) -> Score:
    """How far the thresholds that classes need for a FAR (or `frr=`: FRR) of F lie from the common one."""
    thresholds = find_class_thresholds(evidence[PairDistances], metric["kind"], metric["rate"])
    per_class = torch.full((len(evidence.sets.class_labels),), math.nan, dtype=torch.float64)
    per_class[torch.from_numpy(thresholds.numbers)] = torch.from_numpy(thresholds.needed)
    return Score(thresholds.gap, per_class=per_class, details=(thresholds,))
