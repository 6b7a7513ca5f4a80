"""Threshold consistency: how differently do classes, or whole data sets, fare under one common threshold?

Zhang et al.: Threshold-consistent margin loss for open-world deep metric learning (2024). With TPR_i(d) the share of
the positive pairs of member i within distance d and TNR_i(d) the share of its negative pairs beyond it,

    U_i(d) = (1 + c²)·TNR_i·TPR_i / (c²·TNR_i + TPR_i)           utility of member i
    OPIS   = 1/T Σ_i 1/(d_max − d_min) ∫ (U_i(d) − Ū(d))² dd     operating-point inconsistency score
    ε-OPIS = 1/(d_max − d_min) ∫ (Ū_best(d) − Ū_worst(d))² dd    of the best and the worst ε·T members

over a calibration range [d_min, d_max]; lower is better. Members rank by their mean utility over the range.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.bins import DEFAULT_FAR
from equimetric.evaluation.comparison import Comparison
from equimetric.evaluation.distances import PairDistances, pair_distances
from equimetric.evaluation.exact import slices
from equimetric.evaluation.families import Collector, Evidence, MetricFamily, Score
from equimetric.evaluation.inputs import Geometry, GivenEmbeddings, GivenLabels, LabelledSets, as_labels, labelled_sets
from equimetric.evaluation.scan import Tile, scan
from equimetric.seeding import derive_seed

__all__ = ["FAMILIES", "Consistency", "class_consistency", "data_set_consistency", "threshold_consistency", "utility"]

Floats = NDArray[np.float64]
CLASSES_AT_A_TIME = 1024
HALVINGS = 64
"""How often the sampled rows are split into halves to see how much an estimate depends on them."""


@dataclass(frozen=True, repr=False, eq=False)
class Consistency:
    """Utility curves of the members over the calibration range, and what they say.

    thresholds         (G,) distances, evenly spaced over the range
    utility            (T, G), one curve for each member
    members            (T,) their names: class labels, or data sets
    numbers            (T,) their class numbers, or places among the data sets
    calibration_range  (d_min, d_max)
    possible_error     how wrong a share of negative pairs can be where pairs were counted in bins; 0: nothing was
    sampled            how many rows were sampled; None: all pairs were compared
    halves             pairs of utilities (T, G) from two halves of the sampled rows; empty if all pairs were compared
    """

    thresholds: Floats
    utility: Floats
    members: tuple[int | str, ...]
    numbers: NDArray[np.int64]
    calibration_range: tuple[float, float]
    possible_error: float = 0.0
    sampled: int | None = None
    sampled_share: float = 1.0
    halves: tuple[tuple[Floats, Floats], ...] = ()

    @property
    def opis(self) -> float:
        """Mean squared deviation of the utilities from their mean, averaged over the range."""
        return self._unbiased(None)

    def epsilon_opis(self, epsilon: float = 0.1) -> float:
        """Squared difference between the mean utilities of the best and the worst ε of the members."""
        return self._unbiased(_checked_share(epsilon))

    def standard_error(self, epsilon: float | None = None) -> float:
        """Of OPIS, or of ε-OPIS, due to sampling rows: 0 if all pairs were compared."""
        if not self.halves:
            return 0.0
        share = None if epsilon is None else _checked_share(epsilon)
        squares = [(self._inconsistency(a, share) - self._inconsistency(b, share)) ** 2 for a, b in self.halves]
        return math.sqrt((1 - self.sampled_share) * math.fsum(squares) / len(squares)) / 2

    @property
    def mean_utility(self) -> Floats:
        """Of each member over the range, (T,)."""
        return self._over_range(self.utility)

    def best(self, count: int = 5) -> dict[int | str, float]:
        """The members of largest mean utility."""
        return self._ranked(-self.mean_utility, count)

    def worst(self, count: int = 5) -> dict[int | str, float]:
        """The members of least mean utility."""
        return self._ranked(self.mean_utility, count)

    def to_dict(self) -> dict[str, Any]:
        """The summary in plain types, ready for JSON."""
        return {
            "opis": self.opis,
            "opis@10%": self.epsilon_opis(0.1),
            "standard_error": self.standard_error(),
            "sampled_rows": self.sampled,
            "members": len(self.members),
            "calibration_range": list(self.calibration_range),
            "thresholds": len(self.thresholds),
            "possible_error": self.possible_error,
            "mean_utility": dict(zip(map(str, self.members), self.mean_utility.tolist(), strict=True)),
        }

    def __repr__(self) -> str:
        low, high = self.calibration_range
        lines = [
            f"Consistency of {len(self.members)} members, distances {low:.4f} … {high:.4f}",
            f"  OPIS      {1e3 * self.opis:8.3f} ×10⁻³{self._error_note(None)}",
            f"  10%-OPIS  {1e3 * self.epsilon_opis():8.3f} ×10⁻³{self._error_note(0.1)}",
            *(
                f"  {kind}     {', '.join(f'{name} ({value:.3f})' for name, value in some.items())}"
                for kind, some in (("best ", self.best(3)), ("worst", self.worst(3)))
            ),
        ]
        if self.sampled is not None:
            lines.append(f"  estimated from {self.sampled} sampled rows")
        return "\n".join(lines)

    def _error_note(self, epsilon: float | None) -> str:
        return f" ± {1e3 * self.standard_error(epsilon):.3f}" if self.halves else ""

    def _unbiased(self, share: float | None) -> float:
        """Noise in the utilities adds to their spread, twice as much with half of the rows: it is subtracted."""
        value = self._inconsistency(self.utility, share)
        if not self.halves:
            return value
        of_halves = [self._inconsistency(half, share) for halves in self.halves for half in halves]
        return value - (1 - self.sampled_share) * (math.fsum(of_halves) / len(of_halves) - value)

    def _inconsistency(self, utility: Floats, share: float | None) -> float:
        if share is None:
            mean, squares = utility.mean(axis=0), np.zeros(utility.shape[1])
            for some in slices(len(utility), CLASSES_AT_A_TIME):
                squares += ((utility[some] - mean) ** 2).sum(axis=0)
            return float(self._over_range(squares / len(utility)))
        count = max(1, math.floor(share * len(utility) + 0.5))
        ranking = np.argsort(self._over_range(utility), kind="stable")
        difference = utility[ranking[-count:]].mean(axis=0) - utility[ranking[:count]].mean(axis=0)
        return float(self._over_range(difference**2))

    def _over_range(self, values: Floats) -> Floats:
        """1/(d_max − d_min) ∫ … dd along the last axis, by the trapezoidal rule."""
        widths = np.diff(self.thresholds)
        weights = (np.append(widths, 0.0) + np.append(0.0, widths)) / 2
        return np.asarray(values @ weights / widths.sum())

    def _ranked(self, keys: Floats, count: int) -> dict[int | str, float]:
        means = self.mean_utility
        return {self.members[i]: float(means[i]) for i in np.argsort(keys, kind="stable")[:count]}


def utility(tpr: Floats, tnr: Floats, c: float = 1.0) -> Floats:
    """U = (1 + c²)·TNR·TPR / (c²·TNR + TPR), 0 where both are 0; for c = 1 their harmonic mean."""
    denominator = c**2 * tnr + tpr
    product = (1 + c**2) * tnr * tpr
    return np.divide(product, denominator, out=np.zeros_like(product), where=denominator > 0)


def threshold_consistency(
    embeddings: GivenEmbeddings,
    labels: GivenLabels,
    gallery_embeddings: GivenEmbeddings | None = None,
    gallery_labels: GivenLabels | None = None,
    *,
    geometry: Geometry = "cosine",
    calibration_far: tuple[float, float] = DEFAULT_FAR,
    calibration_range: tuple[float, float] | None = None,
    calibration_points: int = 101,
    utility_c: float = 1.0,
    members: GivenLabels | None = None,
    sample: int | None = None,
    seed: int = 0,
    block_rows: int | None = None,
    progress: bool = False,
) -> Consistency:
    """How differently classes, or data sets, fare under one common threshold.

    calibration_far     the range reaches between the thresholds of these false accept rates, over all negative pairs
    calibration_range   two distances, instead
    calibration_points  thresholds in the range
    utility_c           weight of the true accept rate in the utility; 1: harmonic mean
    members             the data set of each row: members are then whole data sets, of which only pairs inside count
    sample              estimate from this many rows, of all classes in proportion, each compared with everything;
                        for data too large to compare all pairs. The result states its standard error
    """
    sets = labelled_sets(embeddings, labels, gallery_embeddings, gallery_labels, geometry=geometry)
    options: dict[str, Any] = {
        "calibration_far": calibration_far,
        "calibration_range": calibration_range,
        "calibration_points": calibration_points,
        "utility_c": utility_c,
    }
    _check(options)
    how: dict[str, Any] = {"block_rows": block_rows, "progress": progress}
    if members is not None and sample is not None:
        raise EquimetricError("data sets are compared whole; give either members or sample")
    if members is not None:
        return data_set_consistency(sets, members, options, **how)
    if sample is not None:
        return _estimated_consistency(sets, sample, seed, options, **how)
    return class_consistency(pair_distances(sets, only_interest=True, **how, **options), options)


def class_consistency(distances: PairDistances, options: Mapping[str, Any]) -> Consistency:
    """Members are the classes with a positive and a negative pair."""
    _check(options)
    numbers = np.flatnonzero((distances.positives_of_class > 0) & (distances.negatives_of_class > 0))
    thresholds = _thresholds([distances], options)
    curves = np.empty((len(numbers), len(thresholds)))
    filled = 0
    for some in slices(distances.classes, CLASSES_AT_A_TIME):
        which = numbers[(numbers >= some.start) & (numbers < some.stop)]
        counts = distances.accepted_of_classes(thresholds, some)
        tpr = counts.positive[which - some.start] / distances.positives_of_class[which, None]
        tnr = 1 - counts.negative[which - some.start] / distances.negatives_of_class[which, None]
        curves[filled : filled + len(which)] = utility(tpr, tnr, options["utility_c"])
        filled += len(which)
    names = tuple(distances.sets.class_labels[number] for number in numbers)
    return Consistency(thresholds, curves, names, numbers, _ends(thresholds), distances.possible_error(thresholds))


def data_set_consistency(
    sets: LabelledSets,
    members: GivenLabels,
    options: Mapping[str, Any],
    *,
    block_rows: int | None = None,
    progress: bool = False,
) -> Consistency:
    """Members are whole data sets, each with all pairs inside it; the range is that of all their negative pairs."""
    if sets.gallery is not None:
        raise EquimetricError("members name data sets of one collection; they cannot be compared with a gallery")
    names, place = np.unique(as_labels(members, "members", len(sets.queries)), return_inverse=True)
    if len(names) < 2:
        raise EquimetricError(f"all members are the same data set ({names[0]}); consistency needs at least two")
    of_each = []
    for number, name in enumerate(names.tolist()):
        rows = torch.from_numpy(place == number).to(sets.queries.device)
        try:
            inside = labelled_sets(sets.queries[rows], sets.query_classes[rows], geometry=sets.geometry)
        except EquimetricError as error:
            raise EquimetricError(f"data set {name!r}: {error}") from error
        of_each.append(pair_distances(inside, block_rows=block_rows, progress=progress, **options))
    thresholds = _thresholds(of_each, options)
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
        _ends(thresholds),
        max(distances.possible_error(thresholds) for distances in of_each),
    )


def _thresholds(distances: Sequence[PairDistances], options: Mapping[str, Any]) -> Floats:
    """The calibration range, evenly divided: given, or the quantiles of all negative distances at two FARs."""
    given = options["calibration_range"]
    ends = [_negative_quantile(distances, far) for far in options["calibration_far"]] if given is None else given
    if not ends[0] < ends[1]:
        raise EquimetricError(
            f"the calibration range {ends[0]:.6g} … {ends[1]:.6g} is empty: too many negative pairs are equally far; "
            "give calibration_far farther apart, or a calibration_range"
        )
    return np.linspace(ends[0], ends[1], options["calibration_points"])


def _negative_quantile(distances: Sequence[PairDistances], share: float) -> float:
    """Linear between the two nearest of all negative distances, as numpy's quantile."""
    place = share * (sum(some.negatives for some in distances) - 1)
    lower = math.floor(place)
    low, high = (_pooled_distance(distances, rank) for rank in (lower, math.ceil(place)))
    return low + (place - lower) * (high - low)


def _pooled_distance(distances: Sequence[PairDistances], rank: int) -> float:
    """The negative distance of that rank among all sets: the least t within which more than `rank` pairs lie."""
    if len(distances) == 1:
        return float(distances[0].negative_distance(rank))
    ends = [some.negative_distance([0, some.negatives - 1]) for some in distances]
    low, high = float(np.nextafter(min(end[0] for end in ends), -np.inf)), float(max(end[1] for end in ends))
    while low < (middle := (low + high) / 2) < high:
        within = sum(float(some.accepted(middle).negative) for some in distances)
        low, high = (low, middle) if within > rank else (middle, high)
    return high


def _ends(thresholds: Floats) -> tuple[float, float]:
    return float(thresholds[0]), float(thresholds[-1])


def _check(options: Mapping[str, Any]) -> None:
    far, given = options["calibration_far"], options["calibration_range"]
    if given is None and not 0 <= far[0] < far[1] <= 1:
        raise EquimetricError(f"calibration_far is {far}; give two false accept rates, 0 ≤ smaller < larger ≤ 1")
    if given is not None and not given[0] < given[1]:
        raise EquimetricError(f"calibration_range is {given}; give two distances, the smaller first")
    if options["calibration_points"] < 2:
        raise EquimetricError(f"calibration_points is {options['calibration_points']}; give at least 2")
    if not options["utility_c"] > 0:
        raise EquimetricError(f"utility_c is {options['utility_c']}; give a number above 0")


def _checked_share(epsilon: float) -> float:
    if not 0 < epsilon <= 0.5:
        raise EquimetricError(f"ε is {epsilon}; the best and the worst share of the members lie above 0, up to 0.5")
    return epsilon


class AcceptedByRow(Collector):
    """Pairs within each of G thresholds, for every query: (N, G) positive and negative; and the number of its pairs."""

    def __init__(self, sets: LabelledSets, thresholds: Floats) -> None:
        super().__init__(sets, {}, ())
        self.thresholds = torch.from_numpy(thresholds).to(sets.queries.device)
        shape = (len(sets.queries), len(thresholds))
        self.positive, self.negative = np.zeros(shape), np.zeros(shape)
        self.positives, self.negatives = np.zeros(shape[0]), np.zeros(shape[0])

    def collect(self, tile: Tile) -> None:
        """Count the pairs of each row at the first threshold that accepts them."""
        width = len(self.thresholds) + 2
        for row, query in enumerate(tile.rows.tolist()):
            distance = tile.part(slice(row, row + 1)).distance()[0]
            place = torch.bucketize(distance, self.thresholds.to(distance.dtype))
            place[distance == torch.inf] = width - 1
            same = self.sets.gallery_classes == self.sets.query_classes[query]
            for kind, accepted, total in (
                (same, self.positive, self.positives),
                (~same, self.negative, self.negatives),
            ):
                counts = torch.bincount(place[kind], minlength=width)[:-1].cumsum(0).cpu().numpy()
                accepted[query], total[query] = counts[:-1], counts[-1]


def _estimated_consistency(
    sets: LabelledSets,
    sample: int,
    seed: int,
    options: Mapping[str, Any],
    *,
    block_rows: int | None = None,
    progress: bool = False,
) -> Consistency:
    """Consistency of the classes from some rows of each against the whole gallery, with what its error is seen from."""
    rows = _stratified_rows(sets, sample, seed)
    sampled = _only_rows(sets, rows)
    distances = pair_distances(sampled, only_interest=True, block_rows=block_rows, progress=progress, **options)
    thresholds = _thresholds([distances], options)
    counts = AcceptedByRow(sampled, thresholds)
    scan(Comparison.of(sampled), [counts], block_rows=block_rows, progress=progress)
    classes = sampled.query_classes.cpu().numpy()
    numbers = np.unique(classes)

    def utilities(which: NDArray[np.int64]) -> Floats:
        of_class = np.searchsorted(numbers, classes[which])
        by_class = np.zeros((len(numbers), len(which)))
        by_class[of_class, np.arange(len(which))] = 1
        tpr = (by_class @ counts.positive[which]) / (by_class @ counts.positives[which])[:, None]
        tnr = 1 - (by_class @ counts.negative[which]) / (by_class @ counts.negatives[which])[:, None]
        return utility(tpr, tnr, options["utility_c"])

    generator = np.random.default_rng(derive_seed(seed, "halves of sampled rows"))
    halves = tuple(
        (utilities(half), utilities(other)) for half, other in (_halves(classes, generator) for _ in range(HALVINGS))
    )
    return Consistency(
        thresholds,
        utilities(np.arange(len(classes))),
        tuple(sets.class_labels[number] for number in numbers),
        numbers,
        _ends(thresholds),
        sampled=len(rows),
        sampled_share=len(rows) / len(sets.queries),
        halves=halves,
    )


def _stratified_rows(sets: LabelledSets, sample: int, seed: int) -> Tensor:
    """Random rows of every class in proportion to its size, two at least, of those that have positive pairs."""
    classes = sets.query_classes.cpu().numpy()
    usable = np.flatnonzero(sets.relevant.cpu().numpy() > 0)
    generator = np.random.default_rng(derive_seed(seed, "stratified rows"))
    shuffled = generator.permutation(usable)
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    sizes = np.bincount(classes[by_class])
    within = np.arange(len(by_class)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    wanted = np.maximum(2, np.round(sizes * min(1.0, sample / len(usable))))
    if sample < 2 * np.count_nonzero(sizes):
        raise EquimetricError(
            f"sample is {sample} rows for {np.count_nonzero(sizes)} classes; give at least two for each class"
        )
    rows = by_class[(within < np.repeat(wanted, sizes)) & (np.repeat(sizes, sizes) >= 2)]
    return torch.from_numpy(np.sort(rows)).to(sets.queries.device)


def _only_rows(sets: LabelledSets, rows: Tensor) -> LabelledSets:
    """Some queries against the whole gallery; a query of the gallery stays without itself."""
    place = torch.full((len(sets.queries),), -1, dtype=torch.int64, device=rows.device)
    place[rows] = torch.arange(len(rows), device=rows.device)
    absent = sets.absent if sets.absent is not None else rows.new_empty(0, 2)
    if sets.gallery is None:
        absent = torch.cat([rows[:, None].expand(-1, 2), absent])
    absent = torch.stack([place[absent[:, 0]], absent[:, 1]], dim=1)
    return replace(
        sets,
        queries=sets.queries[rows],
        gallery=sets.gallery_vectors,
        query_classes=sets.query_classes[rows],
        labels=tuple(str(sets.class_labels[number]) for number in sets.query_classes[rows].tolist()),
        absent=absent[absent[:, 0] >= 0],
    )


def _halves(classes: NDArray[np.int64], generator: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split the rows at random so that of each class half is in either part, the odd one in a random part."""
    shuffled = generator.permutation(len(classes))
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    _, start, sizes = np.unique(classes[by_class], return_index=True, return_counts=True)
    offset = np.repeat(generator.integers(0, 2, len(sizes)), sizes)
    even = (np.arange(len(by_class)) - np.repeat(start, sizes) + offset) % 2 == 0
    return by_class[even], by_class[~even]


def _score_opis(match: re.Match[str], evidence: Evidence) -> Score:
    options = evidence.options
    if options["members"] is not None:
        result = data_set_consistency(evidence.sets, options["members"], options)
        per_class = None
    else:
        distances = evidence[PairDistances]
        result = evidence.shared("class consistency", lambda: class_consistency(distances, options))
        per_class = torch.full((len(evidence.sets.class_labels),), math.nan, dtype=torch.float64)
        per_class[torch.from_numpy(result.numbers)] = torch.from_numpy(result.mean_utility)
    value = result.opis if match["percent"] is None else result.epsilon_opis(float(match["percent"]) / 100)
    curves = {
        "threshold": result.thresholds,
        "utility": result.utility,
        "classes": result.numbers,
        "range": result.calibration_range,
    }
    details = {
        "utility": curves,
        "calibration_range": result.calibration_range,
        "opis possible error of a class's far": result.possible_error,
    }
    return Score(value, per_class=per_class, details=details)


FAMILIES: tuple[MetricFamily, ...] = (
    MetricFamily(
        r"opis(?:@(?P<percent>[0-9]+(?:\.[0-9]+)?)%)?",
        ("opis", "opis@10%"),
        (PairDistances,),
        _score_opis,
        options={
            "calibration_far": DEFAULT_FAR,
            "calibration_range": None,
            "calibration_points": 101,
            "utility_c": 1.0,
            "members": None,
        },
        percent=False,
    ),
)
