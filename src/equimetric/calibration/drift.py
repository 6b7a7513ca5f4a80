"""Whether new embeddings are distributed like those that a threshold was calibrated on, with or without labels.

Images of one class resemble each other, so that neither images nor pairs are independent: what varies by chance is
above all which classes there are. All that is compared is therefore a mean over classes, and how much it varies comes
from the classes of the calibration data, for the numbers of classes and of images per class that the new data have:

* the mean embedding, whose squared change is compared with a sum of χ² variables;
* the shares of negative pairs at a few distances, a U-statistic over classes: its variance has a part of classes, a
  part of pairs of classes, and one of images;
* the shares of positive pairs at a few distances, a mean over classes.

Without labels, positive and negative pairs are mixed: of C equally large classes of m images, (m − 1)/(n − 1) of the n
images' pairs are positive. C is not known, so every number of classes that is not excluded (`classes` or more) is
tried, and there is an alarm only where none explains the data; few close pairs tell that classes are many. Whatever C
is, the alarm is then no more frequent than for that C alone. The calibration data vary by chance, too, as if they had
other classes than the new data.

Variances of a few classes are uncertain, and means over a few are not normal: what is drawn by chance has the heavier
tails of Student's t, with C − 1 degrees of freedom for C calibrated classes, and where the number of new ones is known
no more than 2 C − 1 for these. Where all numbers are tried, that makes alarms rare enough.
"""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equimetric.calibration.drift_text import drift_text
from equimetric.errors import EquimetricError
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.bins import distance_at
from equimetric.evaluation.engine.inputs import EmbeddingsLike, GeometryLike, LabelsLike, convert_labels, prepare_sets
from equimetric.evaluation.engine.pair_distances import PairDistances
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.seeding import derive_seed

__all__ = ["DriftCheck", "DriftReference", "check_drift", "drift_reference"]

NEGATIVE_LEVELS, POSITIVE_LEVELS = (0.05, 0.2, 0.5, 0.8), (0.25, 0.5, 0.75)
"""Shares of negative and of positive pairs at whose distances shares are compared."""
MAX_ROWS = 1200
"""Images that are compared pair by pair."""
MIN_SAMPLES = 4
"""Two samples of two classes, without which there are no pairs of either kind."""
MIN_CLASSES = 10
"""Calibrated classes with which chance can be told: as many as for the bounds of new classes."""
ALARMS = 0.005
"""Share of false alarms aimed at, over all that is compared; measured ones stay below twice that."""
DRAWS = 2000
POWER = 0.8
NUM_STRUCTURES = 20
"""Numbers of classes that are tried without labels."""
NUM_EIGENVALUES = 64
CURVE_POINTS = 65
FINEST = 1e-4
"""Smallest change of distances that is tried, as a share of their median."""

AS_CERTIFIED, SHIFTED, TOO_FEW = "as certified", "shifted: recalibrate", "too few to say"
MEAN, BETWEEN, WITHIN, ALL = (
    "mean embedding",
    "distances between classes",
    "distances within classes",
    "distances of all pairs",
)


@dataclass(frozen=True, eq=False)
class ClassSpread:
    """What calibrated classes were like, and how they vary. K levels, D dimensions.

    classes       their number
    levels        distances (K): first those of negative pairs, then those of positive ones
    negative, positive
                  mean share of pairs at a smaller distance (K), over pairs of classes and over classes
    by_class      (2K, 2K) covariance of a class's part in `negative` and in `positive`
    by_pair, by_image
                  (K, K) covariances in `negative` of pairs of classes, and of images of a class
    mean          of the class means (D)
    mean_by_class, mean_by_image
                  eigenvalues of the covariances of class means, and of images of a class, in descending order
    inverse_size, inverse_half
                  mean over classes of 1 / images, and of 1 / half as many
    """

    classes: int
    levels: Floats
    negative: Floats
    positive: Floats
    by_class: Floats
    by_pair: Floats
    by_image: Floats
    mean: Floats
    mean_by_class: Floats
    mean_by_image: Floats
    inverse_size: float
    inverse_half: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassSpread) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types, arrays to six digits."""
        return {
            name: _six_digits(value).tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
            if name in self.__dataclass_fields__
        }

    @classmethod
    def from_dict(cls, document: Any) -> "ClassSpread":
        """The spread that `to_dict` wrote."""
        numbers = {"classes": int, "inverse_size": float, "inverse_half": float}
        values: dict[str, Any] = {
            name: numbers[name](document[name]) if name in numbers else np.asarray(document[name], np.float64)
            for name in cls.__dataclass_fields__
        }
        spread = cls(**values)
        count = len(NEGATIVE_LEVELS) + len(POSITIVE_LEVELS)
        shapes = [spread.levels.shape, spread.negative.shape, spread.positive.shape, spread.by_class.shape]
        if shapes != [(count,)] * 3 + [(2 * count, 2 * count)] or not np.isfinite(spread.by_class).all():
            raise ValueError("its reference of class distances is incomplete")
        return spread


@dataclass(frozen=True)
class DriftReference:
    """What new embeddings are compared with.

    spread  of the calibrated classes; None where they are too few
    far, distance
            the false accept rate of ascending thresholds
    """

    spread: ClassSpread | None
    far: tuple[float, ...]
    distance: tuple[float, ...]

    @cached_property
    def _log_far(self) -> Floats:
        return np.log(self.far)

    def far_at(self, threshold: float | Floats) -> Any:
        """The false accept rate at a threshold, on a logarithmic scale between the known ones."""
        return np.exp(np.interp(threshold, self.distance, self._log_far))

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types."""
        spread = None if self.spread is None else self.spread.to_dict()
        return {"class_spread": spread, "far": list(self.far), "distance": list(self.distance)}

    @classmethod
    def from_dict(cls, document: Any) -> "DriftReference":
        """The reference that `to_dict` wrote."""
        spread = None if document["class_spread"] is None else ClassSpread.from_dict(document["class_spread"])
        far, distance = tuple(map(float, document["far"])), tuple(map(float, document["distance"]))
        if len(far) != len(distance):
            raise ValueError("its false accept rates are incomplete")
        return cls(spread, far, distance)


@dataclass(frozen=True)
class DriftCheck:
    """The answer of `Certificate.check`.

    answer        'as certified', 'shifted: recalibrate' or 'too few to say'
    samples       embeddings that were given
    compared      of these, how many were compared; 0 where too few
    labelled      whether their classes are known
    classes       their number; without labels the one that explains the data best
    change        the largest change, as a multiple of what chance alone stays below; above 1 is an alarm
    changed       what changed most
    moved         mean change of distances between classes; below 0 the classes are closer
    certified_far, expected_far
                  at the threshold on the calibration data, and if every pair moved by that
    visible_distance, visible_far, visible_mean
                  the smallest shifts that a check like this sees in four of five cases: all distances smaller by this,
                  with the false accept rate that follows, and the mean embedding moved by this; None where even the
                  largest shift would be missed
    shifted_from  without labels: the least number of classes from which on the change is beyond chance
    """

    answer: str
    samples: int
    compared: int = 0
    labelled: bool = False
    classes: int | None = None
    change: float | None = None
    changed: str | None = None
    moved: float | None = None
    certified_far: float | None = None
    expected_far: float | None = None
    visible_distance: float | None = None
    visible_far: float | None = None
    visible_mean: float | None = None
    shifted_from: int | None = None

    @property
    def shifted(self) -> bool:
        """Whether the threshold should be calibrated again."""
        return self.answer == SHIFTED

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types."""
        return asdict(self)

    def __repr__(self) -> str:
        return drift_text(self.to_dict())


def drift_reference(sets: LabelledSets, distances: PairDistances, seed: int) -> DriftReference:
    """What new embeddings will be compared with, from calibration data and the distances of their pairs."""
    shares = np.geomspace(1 / distances.negatives, 1, CURVE_POINTS)
    ranks = np.unique(np.clip(np.ceil(shares * distances.negatives) - 1, 0, None).astype(np.int64))
    distance, first = np.unique(distances.negative_distance(ranks)[::-1], return_index=True)
    # Of equal distances the largest share is accepted.
    far = ((ranks[::-1] + 1) / distances.negatives)[first]
    classes = sets.query_classes.cpu().numpy()
    generator = np.random.default_rng(derive_seed(seed, "class spread"))
    rows = choose_rows(classes, generator)
    usable = len(np.unique(classes[rows])) >= MIN_CLASSES and np.bincount(classes[rows]).max() > 1
    spread = measure_spread(ClassPairs.of(sets, rows, classes[rows])) if usable else None
    return DriftReference(spread, tuple(far.tolist()), tuple(distance.tolist()))


def choose_rows(classes: Integers, generator: np.random.Generator) -> Integers:
    """At most MAX_ROWS rows: of all classes equally many images where there are more, or of some classes two each."""
    order = generator.permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    counts = np.bincount(classes)
    rank = np.arange(len(order)) - (np.cumsum(counts) - counts)[classes[order]]
    chosen = generator.permutation(np.flatnonzero(counts))[: MAX_ROWS // 4]
    keep = np.isin(classes[order], chosen) & (rank < max(2, MAX_ROWS // len(chosen)))
    return np.sort(order[keep])


def pair_distances_of(sets: LabelledSets, rows: Integers) -> Floats:
    """(N, N) distances among these rows; infinite to themselves."""
    index = torch.from_numpy(rows).to(sets.queries.device)
    queries, items = sets.queries[index].double(), sets.gallery_vectors[index].double()
    if sets.geometry == "euclidean":
        distance = torch.cdist(queries, items).cpu().numpy()
    else:
        distance = distance_at((queries @ items.T).cpu().numpy(), sets.geometry, queries.shape[1])
    # A cohort's score of two samples is that of either order.
    distance = (distance + distance.T) / 2
    np.fill_diagonal(distance, np.inf)
    return np.asarray(distance, np.float64)


@dataclass(frozen=True)
class ClassPairs:
    """Distances of labelled samples, and their vectors: what statistics over classes are made of.

    vectors (N, D), distance (N, N), classes (N,) from 0 to C − 1, sizes (C,)
    """

    vectors: Floats
    distance: Floats
    classes: Integers
    sizes: Integers

    @classmethod
    def of(cls, sets: LabelledSets, rows: Integers, classes: Integers) -> "ClassPairs":
        """Those of some rows."""
        _, numbers = np.unique(classes, return_inverse=True)
        return cls(vectors_of(sets, rows), pair_distances_of(sets, rows), numbers, np.bincount(numbers))

    @cached_property
    def several(self) -> Any:
        """(C,) which classes have two images or more."""
        return self.sizes > 1

    def means(self) -> Floats:
        """(C, D) class means."""
        sums = np.zeros((len(self.sizes), self.vectors.shape[1]))
        np.add.at(sums, self.classes, self.vectors)
        return sums / self.sizes[:, None]

    def image_shares(self, levels: Floats) -> Floats:
        """(N, C, K) share of the images of a class within each level of an image."""
        one_hot = np.eye(len(self.sizes))[self.classes]
        return np.stack([(self.distance <= level) @ one_hot for level in levels], axis=2) / self.sizes[:, None]

    def class_shares(self, image_shares: Floats) -> tuple[Floats, Floats]:
        """(C, C, K) shares of the pairs of two classes, and (C', K) of pairs inside a class of several images."""
        sums = np.zeros((len(self.sizes), *image_shares.shape[1:]))
        np.add.at(sums, self.classes, image_shares)
        shares = sums / self.sizes[:, None, None]
        inside = np.arange(len(self.sizes))[self.several]
        sizes = self.sizes[inside, None]
        return shares, shares[inside, inside] * sizes / (sizes - 1)


def vectors_of(sets: LabelledSets, rows: Integers) -> Floats:
    """(N, D) vectors in double precision."""
    index = torch.from_numpy(rows).to(sets.queries.device)
    return np.asarray(sets.queries[index].double().cpu().numpy(), np.float64)


def measure_spread(pairs: ClassPairs) -> ClassSpread:
    """What the calibrated classes are like, and how they vary.

    The share of the pairs of two classes is θ + a_c + a_c' + e_cc' (Hoeffding), where a_c holds what images add, too.
    """
    num, same = len(pairs.sizes), pairs.classes[:, None] == pairs.classes
    negatives, positives = pairs.distance[~same], pairs.distance[same & np.isfinite(pairs.distance)]
    levels = np.concatenate([np.quantile(negatives, NEGATIVE_LEVELS), np.quantile(positives, POSITIVE_LEVELS)])
    by_image = pairs.image_shares(levels)
    shares, inside = pairs.class_shares(by_image)
    off = ~np.eye(num, dtype=bool)
    negative, positive = shares[off].mean(axis=0), inside.mean(axis=0)

    effect = (shares * off[..., None]).sum(axis=1) / (num - 1) - negative
    effect *= (num - 1) / (num - 2)
    within = np.zeros_like(effect)
    within[pairs.several] = inside - positive
    joint = np.concatenate([effect, within], axis=1)
    rest = (shares - negative - effect[:, None] - effect)[np.triu_indices(num, 1)]
    images = (by_image * off[pairs.classes][..., None]).sum(axis=1) / (num - 1)
    degrees = max(1, len(pairs.classes) - num)
    means = pairs.means()
    return ClassSpread(
        classes=num,
        levels=levels,
        negative=negative,
        positive=positive,
        by_class=joint.T @ joint / (num - 1),
        by_pair=rest.T @ rest / len(rest) * (num - 1) / (num - 3),
        by_image=_pooled(images, pairs).T @ _pooled(images, pairs) / degrees,
        mean=means.mean(axis=0),
        mean_by_class=_eigenvalues(means - means.mean(axis=0), num - 1),
        mean_by_image=_eigenvalues(pairs.vectors - means[pairs.classes], degrees),
        inverse_size=float((1 / pairs.sizes).mean()),
        inverse_half=float((1 / (pairs.sizes[pairs.several] // 2)).mean()),
    )


def _pooled(values: Floats, pairs: ClassPairs) -> Floats:
    """(N, K) deviations of images from the mean of their class."""
    sums = np.zeros((len(pairs.sizes), values.shape[1]))
    np.add.at(sums, pairs.classes, values)
    return values - (sums / pairs.sizes[:, None])[pairs.classes]


def _eigenvalues(deviations: Floats, degrees: int) -> Floats:
    """The largest eigenvalues of a covariance; the last holds the sum of all smaller ones."""
    values = np.linalg.svd(deviations, compute_uv=False) ** 2 / degrees
    kept = np.zeros(NUM_EIGENVALUES)
    kept[: min(len(values), NUM_EIGENVALUES)] = values[:NUM_EIGENVALUES]
    kept[-1] += values[NUM_EIGENVALUES:].sum()
    return kept


def _six_digits(values: Floats) -> Floats:
    return np.asarray([float(f"{value:.6g}") for value in values.ravel()]).reshape(values.shape)


def binomial(shares: Floats) -> Floats:
    """(K, K) covariance of the indicators of single pairs at nested levels."""
    return np.asarray(np.minimum(shares[:, None], shares) - shares[:, None] * shares, np.float64)


@dataclass(frozen=True)
class Comparison:
    """One change beside what chance does to it.

    name        what is compared
    residual    (K,) change of shares; for the mean embedding (1,) its squared change
    draws       (DRAWS, K) changes by chance
    scale       (K,) standard deviations; 1 for the mean embedding
    shortfall   (K,) shares of which only a fall counts
    critical    what the largest change in units of `scale` stays below
    slope       (K,) how much of a change of the shares of negative pairs is seen here; none for the mean embedding
    """

    name: str
    residual: Floats
    draws: Floats
    scale: Floats
    shortfall: NDArray[np.bool_]
    critical: float
    slope: Floats | None = None

    @property
    def change(self) -> float:
        """The largest change as a multiple of what chance stays below."""
        return max(0.0, float(largest_change(self.residual, self.scale, self.shortfall) / self.critical))

    def alarms(self, added: Floats | float) -> Any:
        """(DRAWS,) whether draws with this added raise an alarm."""
        return largest_change(self.draws + added, self.scale, self.shortfall) > self.critical


def largest_change(changes: Floats, scale: Floats, shortfall: NDArray[np.bool_]) -> Any:
    """(…, K) → (…) the largest change in units of its standard deviation."""
    return (np.where(shortfall, -changes, np.abs(changes)) / scale).max(axis=-1)


class Chance:
    """Draws by chance for structures of classes, from the same random numbers for all."""

    def __init__(self, spread: ClassSpread, alarms: float, known: bool, generator: np.random.Generator) -> None:
        self.spread, self.alarms, self.known = spread, alarms, known
        self.normal = generator.standard_normal((DRAWS, max(NUM_EIGENVALUES, len(spread.levels))))
        self.generator = generator

    def tails(self, classes: int) -> Floats:
        """(DRAWS, 1) factors that turn normal squares into those of Student's t."""
        degrees = min(self.spread.classes, 2 * classes if self.known else self.spread.classes) - 1
        return np.asarray(degrees / self.generator.chisquare(degrees, (DRAWS, 1)), np.float64)

    def compare_shares(
        self,
        name: str,
        residual: Floats,
        covariance: Floats,
        classes: int,
        slope: Floats | None = None,
        one_sided: int = 0,
    ) -> Comparison:
        """A change of shares whose covariance by chance is known; of the last `one_sided` only a fall counts."""
        shortfall = np.arange(len(residual)) >= len(residual) - one_sided
        covariance = covariance + 1e-8 * np.eye(len(residual))
        scale = np.sqrt(np.diag(covariance))
        values, vectors = np.linalg.eigh(covariance / scale / scale[:, None])
        draws = self.normal[:, : len(residual)] * np.sqrt(np.maximum(values, 0)) @ vectors.T
        draws = draws * np.sqrt(self.tails(classes)) * scale
        critical = float(np.quantile(largest_change(draws, scale, shortfall), 1 - self.alarms))
        return Comparison(name, residual, draws, scale, shortfall, critical, slope)

    def compare_mean(self, moved: Floats, classes: int, inverse_size: float) -> Comparison:
        """A change of the mean embedding of some classes of some images each."""
        spread = self.spread
        more_noise = max(0.0, inverse_size - spread.inverse_size) / classes
        variances = spread.mean_by_class * (1 / classes + 1 / spread.classes) + spread.mean_by_image * more_noise
        # The last eigenvalue stands for many, whose sum hardly varies.
        squares = self.normal[:, :NUM_EIGENVALUES] ** 2
        squares[:, -1] = 1
        draws = (squares @ variances)[:, None] * self.tails(classes)
        critical = float(np.quantile(draws, 1 - self.alarms))
        return Comparison(MEAN, np.array([moved @ moved]), draws, np.ones(1), np.zeros(1, bool), critical)


def compare_labelled(spread: ClassSpread, pairs: ClassPairs, generator: np.random.Generator) -> list[Comparison]:
    """Every class, and every pair of classes, counts alike."""
    chance = Chance(spread, ALARMS / 3, True, generator)
    num, count = len(pairs.sizes), len(NEGATIVE_LEVELS)
    inverse = float((1 / pairs.sizes).mean())
    comparisons = [chance.compare_mean(pairs.means().mean(axis=0) - spread.mean, num, inverse)]
    shares, inside = pairs.class_shares(pairs.image_shares(spread.levels))
    more = max(0.0, inverse - spread.inverse_size)
    if num > 1:
        negative = shares[~np.eye(num, dtype=bool)].mean(axis=0)
        covariance = 4 * (1 / num + 1 / spread.classes) * spread.by_class[:count, :count]
        covariance += 2 * (1 / (num * (num - 1)) + 1 / spread.classes**2) * spread.by_pair[:count, :count]
        covariance += 4 * more / num * spread.by_image[:count, :count]
        covariance += 2 * more * inverse / (num * (num - 1)) * binomial(spread.negative[:count])
        change = (negative - spread.negative)[:count]
        comparisons.append(chance.compare_shares(BETWEEN, change, covariance, num, np.ones(count)))
    if len(inside):
        num_inside, levels = len(inside), len(spread.levels)
        more = max(0.0, float((1 / (pairs.sizes[pairs.several] // 2)).mean()) - spread.inverse_half)
        covariance = (1 / num_inside + 1 / spread.classes) * spread.by_class[levels + count :, levels + count :]
        # A U-statistic of pairs varies at most like the mean of half as many independent pairs (Hoeffding).
        covariance += more / num_inside * binomial(spread.positive[count:])
        change = (inside.mean(axis=0) - spread.positive)[count:]
        comparisons.append(chance.compare_shares(WITHIN, change, covariance, num_inside))
    return comparisons


def compare_unlabelled(
    spread: ClassSpread, vectors: Floats, distances: Floats, least: int | None, generator: np.random.Generator
) -> dict[int, list[Comparison]]:
    """By number of equally large classes: the mean embedding, and the shares of all pairs."""
    chance, num, levels = Chance(spread, ALARMS / 2, least is not None, generator), len(vectors), len(spread.levels)
    found = np.searchsorted(distances, spread.levels, side="right") / len(distances)
    moved = vectors.mean(axis=0) - spread.mean
    compared = {}
    for classes in np.unique(np.geomspace(min(least or 1, num), num, NUM_STRUCTURES).round().astype(int)).tolist():
        size, positives = num / classes, (num / classes - 1) / (num - 1)
        expected = (1 - positives) * spread.negative + positives * spread.positive
        covariance = (
            _combined(spread, 2 * (1 - 1 / classes), positives) / classes
            + _combined(spread, 2 * (1 - positives), positives) / spread.classes
            + 2 * ((classes - 1) / classes**3 + 1 / spread.classes**2) * spread.by_pair
            + 4 / classes * (1 - 1 / classes) ** 2 * max(0.0, 1 / size - spread.inverse_size) * spread.by_image
            + 2 / (num * (num - 1)) * binomial(expected)
        )
        compared[classes] = [
            chance.compare_mean(moved, classes, 1 / size),
            # Of few classes none may be alike: how often such pairs are close cannot be told, only that they are rare.
            chance.compare_shares(
                ALL, found - expected, covariance, classes, np.full(levels, 1 - positives), len(POSITIVE_LEVELS)
            ),
        ]
    return compared


def _combined(spread: ClassSpread, negative: float, positive: float) -> Floats:
    """(K, K) covariance of a class's part in the shares of all pairs."""
    one = np.eye(len(spread.levels))
    factors = np.concatenate([negative * one, positive * one], axis=1)
    return np.asarray(factors @ spread.by_class @ factors.T, np.float64)


def share_of_alarms(
    compared: dict[int, list[Comparison]], classes: int, reference: DriftReference, closer: float, mean: float
) -> float:
    """How often data of so many classes raise an alarm, after all distances or the mean embedding have moved.

    An alarm needs all numbers of classes; draws for the true one are compared with what the others lead one to expect.
    """
    assert reference.spread is not None
    levels = reference.spread.levels
    more = reference.far_at(levels + closer) - reference.far_at(levels)
    everywhere = np.ones(DRAWS, bool)
    for comparisons in compared.values():
        somewhere = np.zeros(DRAWS, bool)
        for own, tried in zip(compared[classes], comparisons, strict=True):
            if tried.name == MEAN:
                # In a direction that chance does not favour, squares add.
                added: Floats | float = mean**2
            elif tried.slope is None or own.slope is None:
                added = 0.0
            else:
                added = own.slope * more[: len(own.slope)] + tried.residual - own.residual
            somewhere |= replace(tried, draws=own.draws).alarms(added)
        everywhere &= somewhere
    return float(everywhere.mean())


def smallest_visible(largest: float, alarms_at: Any) -> float | None:
    """The smallest shift seen in four of five cases, up to the largest one; None where that is missed as well."""
    if largest <= 0 or alarms_at(largest) < POWER:
        return None
    low, high = 0.0, largest
    while high - low > max(FINEST * largest, 0.02 * high):
        middle = (low + high) / 2
        low, high = (low, middle) if alarms_at(middle) >= POWER else (middle, high)
    return high


def check_drift(
    reference: DriftReference,
    vectors: EmbeddingsLike,
    *,
    geometry: GeometryLike,
    labels: LabelsLike | None = None,
    classes: int | None = None,
    cohort: Cohort | None = None,
    threshold: float,
    certified_far: float,
    seed: int,
) -> DriftCheck:
    """Compare new embeddings with the calibrated classes."""
    if classes is not None and (labels is not None or classes < 1):
        raise EquimetricError("classes is the least number of classes of images without labels; give 1 or more")
    spread, num = reference.spread, len(vectors)
    names = None if labels is None else convert_labels(labels, "labels", num)
    if spread is None or num < MIN_SAMPLES:
        return DriftCheck(TOO_FEW, num, labelled=labels is not None)
    # A cohort leaves out no class of unknown images.
    sets = prepare_sets(vectors, np.arange(num) // 2, geometry=geometry)
    sets = sets if cohort is None else replace(cohort, labels=None).normalize(sets)
    generator = np.random.default_rng(derive_seed(seed, "drift"))
    if names is None:
        rows = np.sort(generator.permutation(num)[:MAX_ROWS])
        distances = np.sort(pair_distances_of(sets, rows)[np.triu_indices(len(rows), 1)])
        compared = compare_unlabelled(spread, vectors_of(sets, rows), distances, classes, generator)
    else:
        _, numbers = np.unique(names, return_inverse=True)
        rows = choose_rows(numbers, generator)
        pairs = ClassPairs.of(sets, rows, numbers[rows])
        compared = {len(pairs.sizes): compare_labelled(spread, pairs, generator)}
        distances = np.sort(pairs.distance[pairs.classes[:, None] != pairs.classes])

    changes = {tried: max(each.change for each in comparisons) for tried, comparisons in compared.items()}
    best = min(changes, key=changes.__getitem__)
    largest = max(compared[best], key=lambda each: each.change)
    positives = 0.0 if names is not None else (len(rows) / best - 1) / (len(rows) - 1)
    moved = _moved(spread, distances, positives)
    visible = _visible(reference, compared, best, threshold)
    beyond = None
    if names is None and changes[best] <= 1:
        # What is said of a number of classes is what a check with that number finds.
        given = compare_unlabelled(spread, vectors_of(sets, rows), distances, classes or 1, generator)
        beyond = _shifted_from(given)
    answer = SHIFTED if changes[best] > 1 else TOO_FEW if visible == (None, None) else AS_CERTIFIED
    expected = certified_far * reference.far_at(threshold - moved) / reference.far_at(threshold)
    seen = visible[0]
    return DriftCheck(
        answer,
        samples=num,
        compared=len(rows),
        labelled=names is not None,
        classes=best,
        change=changes[best],
        changed=largest.name,
        moved=moved,
        certified_far=certified_far,
        expected_far=float(min(1.0, expected)),
        visible_distance=seen,
        visible_far=None if seen is None else _far_closer(reference, threshold, certified_far, seen),
        visible_mean=visible[1],
        shifted_from=beyond,
    )


def _shifted_from(compared: dict[int, list[Comparison]]) -> int | None:
    """The least number of classes from which on none explains the data."""
    found = None
    for tried in sorted(compared, reverse=True):
        if max(each.change for each in compared[tried]) <= 1:
            break
        found = tried
    return found


def _far_closer(reference: DriftReference, threshold: float, certified_far: float, closer: float) -> float:
    rate = certified_far * reference.far_at(threshold + closer) / reference.far_at(threshold)
    return float(min(1.0, rate))


def _moved(spread: ClassSpread, distances: Floats, positives: float) -> float:
    """The mean change of the distances at the levels of negative pairs, given the share of positive ones."""
    if not len(distances):
        return 0.0
    count = len(NEGATIVE_LEVELS)
    expected = (1 - positives) * spread.negative + positives * spread.positive
    return float((np.quantile(distances, expected[:count].clip(0, 1)) - spread.levels[:count]).mean())


def _visible(
    reference: DriftReference, compared: dict[int, list[Comparison]], classes: int, threshold: float
) -> tuple[float | None, float | None]:
    """The smallest visible shifts of all distances and of the mean embedding.

    The largest shifts in question bring the median distance to the threshold, and the mean as far away as two classes
    are from each other.
    """
    spread = reference.spread
    assert spread is not None
    median = float(spread.levels[NEGATIVE_LEVELS.index(0.5)])
    apart = float(np.sqrt(2 * spread.mean_by_class.sum()))
    return (
        smallest_visible(median - threshold, lambda closer: share_of_alarms(compared, classes, reference, closer, 0.0)),
        smallest_visible(apart, lambda mean: share_of_alarms(compared, classes, reference, 0.0, mean)),
    )
