"""Whether unlabelled embeddings are distributed like those used for calibration.

A crowded space has close nearest neighbours, and these need no label. Their distances depend on how many samples there
are and on how many are of one class. So the nearest of only three other samples is taken, in random blocks of four:
most of these have no other image of their class in the block, in sets of any size. What the calibration data vary by
chance comes from drawing their classes with replacement, and different images from them: two such draws differ as two
sets of classes do.

The measure is the mean absolute difference of the quantiles (the first Wasserstein distance). If every pair moved as
the neighbours did on average, by δ, the threshold t accepts what t − δ accepted before: the expected FAR.

Data of far fewer classes than the calibrated ones have closer neighbours for that reason alone.
"""

from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.bins import distance_at
from equimetric.evaluation.engine.inputs import EmbeddingsLike, GeometryLike, prepare_sets
from equimetric.evaluation.engine.pair_distances import PairDistances
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.seeding import derive_seed

__all__ = ["DriftCheck", "DriftReference", "NeighbourDistances", "check_drift", "drift_reference"]

BLOCK = 4
"""Samples among which a nearest neighbour is looked for: few, so that most have no other image of their class there,
however many classes there are."""
SAMPLES = (32, 64, 128, 256, 512, 1024, 2048)
"""Numbers of samples that are compared, up to half of the calibration data."""
MAX_SHARE = 1 / 2
DRAWS = 60
"""Draws of classes; their 1,770 pairs give the distribution of the shift by chance."""
NUM_SUBSETS = 20
"""Random subsets whose quantiles are averaged."""
LEVELS = (np.arange(32) + 0.5) / 32
CURVE_POINTS = 65

AS_CERTIFIED, SHIFTED, TOO_FEW = "as certified", "shifted: recalibrate", "too few to say"


@dataclass(frozen=True)
class NeighbourDistances:
    """Quantiles of the distance to the nearest of a block, for `samples` random samples, and how they vary.

    chance  the shift that two draws of classes stay below with the confidence of the certificate
    """

    samples: int
    quantiles: tuple[float, ...]
    chance: float


@dataclass(frozen=True)
class DriftReference:
    """What new embeddings are compared with.

    neighbours  of ascending numbers of samples; empty where the calibration data are too few
    far, distance
                the false accept rate of ascending thresholds
    """

    neighbours: tuple[NeighbourDistances, ...]
    far: tuple[float, ...]
    distance: tuple[float, ...]

    def neighbours_for(self, samples: int) -> NeighbourDistances | None:
        """The entry of the largest number of samples that is at most this; None where it is too small."""
        candidates = (entry for entry in self.neighbours if entry.samples <= samples)
        return max(candidates, key=attrgetter("samples"), default=None)

    def far_at(self, threshold: float) -> float:
        """The false accept rate at a threshold, on a logarithmic scale between the known ones."""
        return float(np.exp(np.interp(threshold, self.distance, np.log(self.far))))

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types."""
        return {
            "nearest_neighbours": [{**asdict(entry), "quantiles": list(entry.quantiles)} for entry in self.neighbours],
            "far": list(self.far),
            "distance": list(self.distance),
        }

    @classmethod
    def from_dict(cls, document: Any) -> "DriftReference":
        """The reference that `to_dict` wrote."""
        neighbours = tuple(
            NeighbourDistances(int(entry["samples"]), tuple(map(float, entry["quantiles"])), float(entry["chance"]))
            for entry in document["nearest_neighbours"]
        )
        far, distance = tuple(map(float, document["far"])), tuple(map(float, document["distance"]))
        if len(far) != len(distance) or any(len(entry.quantiles) != len(LEVELS) for entry in neighbours):
            raise ValueError("its reference of nearest neighbours is incomplete")
        return cls(neighbours, far, distance)


@dataclass(frozen=True)
class DriftCheck:
    """The answer of `Certificate.check`.

    answer        'as certified', 'shifted: recalibrate' or 'too few to say'
    samples       embeddings that were given
    compared      samples in the random subsets that were compared; 0 where too few
    shift         mean absolute change of the quantiles of nearest-neighbour distances
    chance        the shift that chance alone stays below
    moved         mean change of these distances; below 0 the neighbours are closer
    certified_far, expected_far
                  at the threshold on the calibration data, and if every pair moved as the neighbours did
    """

    answer: str
    samples: int
    compared: int = 0
    shift: float | None = None
    chance: float | None = None
    moved: float | None = None
    certified_far: float | None = None
    expected_far: float | None = None

    @property
    def shifted(self) -> bool:
        """Whether the threshold should be calibrated again."""
        return self.answer == SHIFTED

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types."""
        return asdict(self)

    def __repr__(self) -> str:
        if self.shift is None or self.moved is None or self.expected_far is None or self.certified_far is None:
            return f"{self.answer}: {self.samples} samples"
        direction = "closer" if self.moved < 0 else "farther"
        return (
            f"{self.answer}\n"
            f"  nearest neighbours  {abs(self.moved):.3g} {direction} on average, shift {self.shift:.3g}; chance alone "
            f"stays below {self.chance:.3g} (among {self.compared} of {self.samples} samples)\n"
            f"  expected FAR        {self.expected_far:.3g} instead of {self.certified_far:.3g}, if all pairs moved "
            "as these did"
        )


def drift_reference(sets: LabelledSets, distances: PairDistances, confidence: float, seed: int) -> DriftReference:
    """What new embeddings will be compared with, from calibration data and the distances of their pairs."""
    generator = np.random.default_rng(derive_seed(seed, "nearest neighbours"))
    sizes = [size for size in SAMPLES if size <= MAX_SHARE * len(sets.queries)]
    neighbours = tuple(_reference_of(sets, size, confidence, generator) for size in sizes)
    shares = np.geomspace(1 / distances.negatives, 1, CURVE_POINTS)
    ranks = np.unique(np.clip(np.ceil(shares * distances.negatives) - 1, 0, None).astype(np.int64))
    distance, first = np.unique(distances.negative_distance(ranks)[::-1], return_index=True)
    # Of equal distances the largest share is accepted.
    far = ((ranks[::-1] + 1) / distances.negatives)[first]
    return DriftReference(neighbours, tuple(far.tolist()), tuple(distance.tolist()))


def _reference_of(
    sets: LabelledSets, size: int, confidence: float, generator: np.random.Generator
) -> NeighbourDistances:
    draws = np.stack([_quantiles(sets, _draw_classes(sets, size, generator)) for _ in range(DRAWS)])
    first, second = np.triu_indices(DRAWS, 1)
    chance_shifts = np.abs(draws[first] - draws[second]).mean(axis=1)
    quantiles = _mean_quantiles(sets, size, generator)
    return NeighbourDistances(size, tuple(quantiles.tolist()), float(np.quantile(chance_shifts, confidence)))


def _draw_classes(sets: LabelledSets, size: int, generator: np.random.Generator) -> Integers:
    """Different samples of classes drawn with replacement; a class drawn twice has twice the chance.

    The smallest of exponential times with these rates are a draw without replacement.
    """
    classes, labels = len(sets.class_labels), sets.query_classes.cpu().numpy()
    weights = np.bincount(generator.integers(0, classes, classes), minlength=classes)[labels]
    with np.errstate(divide="ignore"):
        times = generator.exponential(size=len(labels)) / weights
    drawn = np.argsort(times)[:size]
    return np.asarray(drawn[np.isfinite(times[drawn])], np.int64)


def _mean_quantiles(sets: LabelledSets, size: int, generator: np.random.Generator) -> Floats:
    subsets = (generator.permutation(len(sets.queries))[:size] for _ in range(NUM_SUBSETS))
    return np.asarray(np.stack([_quantiles(sets, rows) for rows in subsets]).mean(axis=0), np.float64)


def _quantiles(sets: LabelledSets, rows: Integers) -> Floats:
    """Quantiles of the distance from each of these samples to the nearest other one of its block."""
    blocks = torch.from_numpy(rows[: len(rows) // BLOCK * BLOCK].reshape(-1, BLOCK)).to(sets.queries.device)
    queries, items = sets.queries[blocks].double(), sets.gallery_vectors[blocks].double()
    if sets.geometry == "euclidean":
        distance = torch.cdist(queries, items).cpu().numpy()
    else:
        distance = distance_at((queries @ items.mT).cpu().numpy(), sets.geometry, queries.shape[2])
    distance[:, np.arange(BLOCK), np.arange(BLOCK)] = np.inf
    return np.asarray(np.quantile(distance.min(axis=2), LEVELS), np.float64)


def check_drift(
    reference: DriftReference,
    vectors: EmbeddingsLike,
    *,
    geometry: GeometryLike,
    cohort: Cohort | None = None,
    threshold: float,
    certified_far: float,
    seed: int,
) -> DriftCheck:
    """Compare the nearest neighbours of new embeddings with those of the calibration data."""
    neighbours = reference.neighbours_for(len(vectors))
    if neighbours is None:
        return DriftCheck(TOO_FEW, len(vectors))
    # The labels mean nothing: nearest neighbours are of any class, and so is the cohort.
    sets = prepare_sets(vectors, np.arange(len(vectors)) // 2, geometry=geometry)
    sets = sets if cohort is None else replace(cohort, labels=None).normalize(sets)
    generator = np.random.default_rng(derive_seed(seed, "drift"))
    change = _mean_quantiles(sets, neighbours.samples, generator) - np.array(neighbours.quantiles)
    shift, moved = float(np.abs(change).mean()), float(change.mean())
    expected = min(1.0, certified_far * reference.far_at(threshold - moved) / reference.far_at(threshold))
    answer = SHIFTED if shift > neighbours.chance else AS_CERTIFIED
    return DriftCheck(
        answer, len(vectors), neighbours.samples, shift, neighbours.chance, moved, certified_far, expected
    )
