"""The structure of an embedding space: how tight its classes are, how far apart, and how evenly it fills its room.

Density (π) and spectral decay (ρ) after Roth et al.: Revisiting training strategies and generalization performance in
deep metric learning (2020); alignment and uniformity after Wang, Isola: Understanding contrastive representation
learning through alignment and uniformity on the hypersphere (2020).

Sums over all pairs of a class follow from the sum of its vectors wherever the summand is an inner product, so most of
this needs no pairs at all. With a separate gallery, density and decay describe the queries; alignment and uniformity
are taken over the pairs that are compared, a query and a gallery item each.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.clustering import sums_by_group
from equimetric.evaluation.exact import slices
from equimetric.evaluation.families import Collector, Evidence, MetricFamily, Score, exact_mean
from equimetric.evaluation.inputs import LabelledSets
from equimetric.evaluation.scan import TILE_BYTES, Strip, Tile

__all__ = [
    "ClassDensity",
    "PairPotential",
    "Spectrum",
    "alignment",
    "distance_between_classes",
    "distance_to_other_classes",
    "distance_within_classes",
    "singular_values",
    "spectral_decay",
]

Distance = Literal["cosine", "euclidean"]
LEAST_SHARE = 1e-12
"""Shares of the spectrum are taken as at least this much: a dimension that is not used at all costs log(10^12)/D."""
SPECTRUM_ROWS = 4096
SPECTRAL_DECAY = re.compile(r"spectral_decay(?P<reverse>_reverse)?(?:@drop=(?P<drop>[0-9]+))?")
POTENTIAL_ENTRIES = 2**18
"""Similarities turned into potentials at a time; they should stay in the cache."""


def distance_within_classes(vectors: Tensor, classes: Tensor, count: int, distance: Distance = "cosine") -> Tensor:
    """Mean distance of the directions of two members of each class, (count,) float64; NaN for classes of one.

    For cosine, with the sum S of a class of n unit vectors:  mean (1 − s_ij) = 1 − (‖S‖² − n) / (n² − n).
    """
    sizes = classes.bincount(minlength=count).double()
    pairs = sizes * (sizes - 1)
    if distance == "cosine":
        products = sums_by_group(vectors, classes, count, unit=True).square().sum(dim=1) - sizes
        return torch.where(pairs > 0, 1 - products / pairs, torch.nan)
    _check_distance(distance)
    totals = torch.zeros_like(sizes)
    unit = normalize(vectors, dim=1)
    for number, block in _distances_within_classes(unit, classes, unit, classes):
        totals[number] += block.sum()
    return totals / pairs.masked_fill(pairs == 0, torch.nan)


def distance_to_other_classes(vectors: Tensor, classes: Tensor, count: int, distance: Distance = "cosine") -> Tensor:
    """Mean distance of the direction m_u of each class mean to those of all others, (count,) float64; NaN for no class.

    For cosine, over C classes:  mean (1 − m_u·m_v) = 1 − (m_u·Σ m_v − ‖m_u‖²) / (C − 1).
    """
    present = classes.bincount(minlength=count) > 0
    means = normalize(sums_by_group(vectors, classes, count, unit=True)[present], dim=1)
    others = len(means) - 1
    if not others:
        raise EquimetricError("all vectors are of one class; a distance between classes needs at least two")
    if distance == "cosine":
        mean_distance = 1 - (means @ means.sum(dim=0) - means.square().sum(dim=1)) / others
    else:
        _check_distance(distance)
        blocks = slices(len(means), _rows_beside(means))
        mean_distance = torch.cat([torch.cdist(means[rows], means).sum(dim=1) for rows in blocks]) / others
    found = torch.full((count,), torch.nan, dtype=torch.float64, device=vectors.device)
    found[present] = mean_distance
    return found


def distance_between_classes(vectors: Tensor, classes: Tensor, count: int, distance: Distance = "cosine") -> float:
    """Mean distance of the directions of the class means, over all ordered pairs of different classes."""
    return exact_mean(distance_to_other_classes(vectors, classes, count, distance))


def singular_values(vectors: Tensor) -> Tensor:
    """Of the vectors (N, D) as a matrix, not centred: (min(N, D),) float64, falling.

    X and the triangle R of X = QR have the same ones. R is built up from blocks of rows; unlike those of XᵀX, its
    singular values are exact down to rounding, so an unused dimension is seen as unused.
    """
    triangle = vectors[:0].double()
    for rows in slices(len(vectors), max(SPECTRUM_ROWS, vectors.shape[1])):
        triangle = torch.linalg.qr(torch.cat([triangle, vectors[rows].double()]), mode="r").R
    values: Tensor = torch.linalg.svdvals(triangle)
    return values


def spectral_decay(values: Tensor, *, reverse: bool = False, drop: int = 0) -> float:
    """ρ = KL(uniform ‖ spectrum) of the singular values as shares of their sum; 0 where all directions are used alike.

    reverse  KL(spectrum ‖ uniform) instead
    drop     leave the so many largest singular values out first
    """
    if not 0 <= drop < len(values):
        raise EquimetricError(f"{drop} of {len(values)} singular values cannot be dropped; keep at least one")
    kept = values.sort(descending=True).values[drop:].double()
    share = (kept / kept.sum()).clamp(min=LEAST_SHARE)
    log_ratio = (share * len(kept)).log()
    return float((share * log_ratio).sum() if reverse else -log_ratio.mean())


def alignment(sets: LabelledSets, alpha: float = 2.0) -> tuple[float, Tensor]:
    """Mean of d^α over the positive pairs that are compared, d Euclidean; of all, and of each class (C,).

    For α = 2 from the sums of each class:  Σ d² = n_g Σ ‖q‖² + n_q Σ ‖g‖² − 2 ⟨Σ q, Σ g⟩.
    """
    if not alpha > 0:
        raise EquimetricError(f"alpha is {alpha}; alignment needs a power above zero")
    _check_geometry(sets, "alignment")
    if alpha == 2:
        totals = _squared_distances_within_classes(sets)
    else:
        totals = torch.zeros(len(sets.class_labels), dtype=torch.float64, device=sets.queries.device)
        compared = sets.queries, sets.query_classes, sets.gallery_vectors, sets.gallery_classes
        for number, block in _distances_within_classes(*compared):
            totals[number] += block.pow(alpha).sum()
    if sets.absent is not None:
        query, item = sets.absent[sets.query_classes[sets.absent[:, 0]] == sets.gallery_classes[sets.absent[:, 1]]].T
        difference = sets.queries[query].double() - sets.gallery_vectors[item].double()
        totals.index_add_(0, sets.query_classes[query], -torch.linalg.vector_norm(difference, dim=1).pow(alpha))
    pairs = torch.zeros_like(totals).index_add_(0, sets.query_classes, sets.relevant.double())
    return float(totals.sum() / pairs.sum()), totals / pairs.masked_fill(pairs == 0, torch.nan)


class ClassDensity(Collector):
    """Mean distances within the classes of the queries and to their other classes, (C,); `cosine` or `euclidean`."""

    reads_tiles = False

    def finish(self) -> None:
        """Take the distances that were asked for."""
        queries = self.sets.queries, self.sets.query_classes, len(self.sets.class_labels)
        within = {_distance(match) for match in self.metrics if match["kind"] != "inter"}
        between = {_distance(match) for match in self.metrics if match["kind"] != "intra"}
        self.within = {distance: distance_within_classes(*queries, distance).cpu() for distance in within}
        self.to_others = {distance: distance_to_other_classes(*queries, distance).cpu() for distance in between}


class Spectrum(Collector):
    """The singular values of the queries."""

    reads_tiles = False

    def finish(self) -> None:
        """Take them once for all metrics that read them."""
        points, dimension = self.sets.queries.shape
        if points < dimension:
            raise EquimetricError(
                f"the spectral decay of {dimension} dimensions needs at least as many vectors, and there are {points}; "
                "give more, or leave the metric out"
            )
        self.values = singular_values(self.sets.queries)

    @cached_property
    def of_classes(self) -> Tensor:
        """Squared lengths of each class along the singular directions of all, (C, D); they add up to values²."""
        vectors, blocks = self.sets.queries, slices(len(self.sets.queries), SPECTRUM_ROWS)
        products = torch.zeros(vectors.shape[1], vectors.shape[1], dtype=torch.float64, device=vectors.device)
        for rows in blocks:
            products.addmm_(vectors[rows].double().T, vectors[rows].double())
        directions: Tensor = torch.linalg.eigh(products).eigenvectors
        squares = directions.new_zeros(len(self.sets.class_labels), vectors.shape[1])
        for rows in blocks:
            squares.index_add_(0, self.sets.query_classes[rows], (vectors[rows].double() @ directions).square_())
        return squares


class PairPotential(Collector):
    """Σ e^{−t d²} over the pairs of every query, (N,) float64, for each t that was asked for."""

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], metrics: Sequence[re.Match[str]]) -> None:
        super().__init__(sets, options, metrics)
        _check_geometry(sets, "uniformity")
        zeros = torch.zeros(len(sets.queries), dtype=torch.float64, device=sets.queries.device)
        self.sums: dict[float, Tensor] = {_number(match, "t"): zeros.clone() for match in metrics}

    def collect(self, tile: Tile) -> None:
        """Add up the potentials of the tile; pairs that are left out have none."""
        for some in _cached_rows(tile.similarity):
            squared_distance = tile.part(some).distance().square_()
            for t, sums in self.sums.items():
                sums[tile.rows[some]] += torch.exp(-t * squared_distance).sum(dim=1).double()

    def accepts_strips(self) -> bool:
        """A potential is the same from both sides."""
        return True

    def collect_strip(self, strip: Strip) -> None:
        """Pairs with later queries are theirs too."""
        own = strip.rows.stop - strip.rows.start
        for some in _cached_rows(strip.similarity):
            queries, later = strip.queries[some], strip.items[own:]
            squared_distance = strip.comparison.distance(strip.similarity[some], queries).square_()
            for t, sums in self.sums.items():
                potentials = torch.exp(-t * squared_distance)
                sums[queries] += potentials.sum(dim=1).double()
                sums[later] += potentials[:, own:].sum(dim=0).double()

    def uniformity(self, t: float = 2.0) -> float:
        """Log mean e^{−t d²} over the pairs: the lower, the more evenly the vectors are spread."""
        pairs = len(self.sets.queries) * self.sets.candidates
        pairs -= 0 if self.sets.absent is None else len(self.sets.absent)
        return math.log(math.fsum(self.sums[t].tolist()) / pairs)

    def of_classes(self, t: float = 2.0) -> dict[str, Any]:
        """Of one set: the potential of each class, (C,), in all and of pairs within it, and how many pairs."""
        classes, count = self.sets.query_classes, len(self.sets.class_labels)
        potential = torch.zeros(count, dtype=torch.float64, device=classes.device).index_add_(0, classes, self.sums[t])
        within = torch.zeros_like(potential)
        for number, block in _distances_within_classes(self.sets.queries, classes, self.sets.queries, classes):
            within[number] += torch.exp(-t * block.square()).sum()
        sizes = classes.bincount(minlength=count).double()
        found = {
            "potential": potential,
            "within": within - sizes,
            "pairs": sizes * (len(classes) - 1),
            "pairs_within": sizes * (sizes - 1),
        }
        return {name: values.cpu().numpy() for name, values in found.items()}


def _density(match: re.Match[str], evidence: Evidence) -> Score:
    density, distance = evidence[ClassDensity], _distance(match)
    if match["kind"] == "inter":
        return Score(exact_mean(density.to_others[distance]), per_class=density.to_others[distance])
    within = density.within[distance]
    per_class = within / exact_mean(density.to_others[distance]) if match["kind"] == "ratio" else within
    return Score(exact_mean(per_class), per_class=per_class)


def _decay(match: re.Match[str], evidence: Evidence) -> Score:
    spectrum = evidence[Spectrum]
    values = spectrum.values
    value = spectral_decay(values, reverse=match["reverse"] is not None, drop=int(match["drop"] or 0))
    found = {"singular_values": values.cpu().numpy(), "class_spectrum": spectrum.of_classes.cpu().numpy()}
    return Score(value, details=found)


def _alignment(match: re.Match[str], evidence: Evidence) -> Score:
    value, per_class = alignment(evidence.sets, _number(match, "alpha"))
    return Score(value, per_class=per_class)


def _uniformity(match: re.Match[str], evidence: Evidence) -> Score:
    potential, t = evidence[PairPotential], _number(match, "t")
    alone = evidence.sets.gallery is None and evidence.sets.absent is None
    details = {f"{match.string} of classes": potential.of_classes(t)} if alone else {}
    return Score(potential.uniformity(t), details=details)


NUMBER = r"[0-9]+(?:\.[0-9]+)?"
FAMILIES: tuple[MetricFamily, ...] = (
    MetricFamily(
        r"pi_(?P<kind>intra|inter|ratio)(?P<euclidean>_euclidean)?",
        ("pi_intra", "pi_inter", "pi_ratio", "pi_intra_euclidean", "pi_inter_euclidean", "pi_ratio_euclidean"),
        (ClassDensity,),
        _density,
        percent=False,
    ),
    MetricFamily(
        SPECTRAL_DECAY.pattern,
        ("spectral_decay", "spectral_decay_reverse", "spectral_decay@drop=1"),
        (Spectrum,),
        _decay,
        percent=False,
    ),
    MetricFamily(
        rf"alignment(?:@alpha=(?P<alpha>{NUMBER}))?", ("alignment", "alignment@alpha=1"), (), _alignment, percent=False
    ),
    MetricFamily(
        rf"uniformity(?:@t=(?P<t>{NUMBER}))?",
        ("uniformity", "uniformity@t=1"),
        (PairPotential,),
        _uniformity,
        percent=False,
    ),
)


def _distance(match: re.Match[str]) -> Distance:
    return "cosine" if match["euclidean"] is None else "euclidean"


def _number(match: re.Match[str], name: str) -> float:
    """A parameter of a metric's name; 2 where it is left out, as in the paper."""
    return float(match[name] or 2)


def _check_geometry(sets: LabelledSets, metric: str) -> None:
    if sets.geometry not in ("cosine", "euclidean"):
        raise EquimetricError(f"{metric} is made of distances of vectors; use geometry 'cosine' or 'euclidean'")


def _check_distance(distance: str) -> None:
    if distance != "euclidean":
        raise unknown_name("distance", distance, ["cosine", "euclidean"])


def _squared_distances_within_classes(sets: LabelledSets) -> Tensor:
    """Σ d² over all pairs of a query and a gallery item of each class, itself included: (C,)."""
    sizes, lengths, sums = [], [], []
    for vectors, classes in ((sets.queries, sets.query_classes), (sets.gallery_vectors, sets.gallery_classes)):
        count = len(sets.class_labels)
        squared = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64).square()
        sizes.append(classes.bincount(minlength=count))
        lengths.append(sums_by_group(squared[:, None], classes, count).squeeze(1))
        sums.append(sums_by_group(vectors, classes, count))
    products: Tensor = torch.linalg.vecdot(*sums)
    return (sizes[1] * lengths[0] + sizes[0] * lengths[1] - 2 * products).clamp(min=0)


def _distances_within_classes(
    queries: Tensor, query_classes: Tensor, gallery: Tensor, gallery_classes: Tensor
) -> Iterator[tuple[int, Tensor]]:
    """Class number and Euclidean distances (rows, n_g) of some of its queries to all gallery items of the class."""
    count = 1 + int(torch.maximum(query_classes.max(), gallery_classes.max()))
    row_ends = query_classes.bincount(minlength=count).cumsum(0).tolist()
    column_ends = gallery_classes.bincount(minlength=count).cumsum(0).tolist()
    rows, columns = query_classes.argsort(stable=True), gallery_classes.argsort(stable=True)
    for number, (row_start, row_end, column_start, column_end) in enumerate(
        zip([0, *row_ends], row_ends, [0, *column_ends], column_ends, strict=False)
    ):
        items = gallery[columns[column_start:column_end]].double()
        for some in slices(row_end - row_start, _rows_beside(items)):
            block = torch.cdist(queries[rows[row_start:row_end][some]].double(), items)
            if gallery is queries:
                # A vector is at no distance from itself, whatever rounding says.
                block.diagonal(some.start).zero_()
            yield number, block


def _cached_rows(similarity: Tensor) -> list[slice]:
    """Slices of the rows, each so few that what is made of them stays in the cache."""
    return slices(len(similarity), max(1, POTENTIAL_ENTRIES // max(1, similarity.shape[1])))


def _rows_beside(vectors: Tensor) -> int:
    """How many rows of float64 distances to these vectors fit into a tile."""
    return max(1, TILE_BYTES // (8 * max(1, len(vectors))))
