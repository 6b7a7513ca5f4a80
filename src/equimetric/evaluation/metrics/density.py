"""Density (π): how tight classes are and how far apart.

Roth et al.: Revisiting training strategies and generalization performance in deep metric learning (2020).

Sums over all pairs of a class follow from the sum of its vectors where the summand is an inner product, so the cosine
variants need no pairs. With a separate gallery they describe the queries.
"""

from typing import Literal

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.engine.class_distances import distances_within_classes, rows_per_tile
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.mapped_vectors import Vectors, load_vectors
from equimetric.evaluation.evidence import Evidence, Score, exact_mean
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.resampling.class_statistics import ClassStatistic, mean_over_class_pairs, mean_over_classes
from equimetric.evaluation.result import Evaluation
from equimetric.ops.blocks import directions, slices, sum_by_group

__all__ = ["ClassDensity", "distance_between_classes", "distance_to_other_classes", "distance_within_classes"]

DensityDistance = Literal["cosine", "euclidean"]


def distance_within_classes(
    vectors: Vectors, classes: Tensor, count: int, distance: DensityDistance = "cosine"
) -> Tensor:
    """Mean distance of the directions of two members of each class, (count,) float64; NaN for classes of one.

    For cosine, with the sum S of a class of n unit vectors:  mean (1 − s_ij) = 1 − (‖S‖² − n) / (n² − n).
    """
    sizes = classes.bincount(minlength=count).double()
    pairs = sizes * (sizes - 1)
    if distance == "cosine":
        products = sum_by_group(vectors, classes, count, unit=True).square().sum(dim=1) - sizes
        return torch.where(pairs > 0, 1 - products / pairs, torch.nan)
    _check_distance(distance)
    totals = torch.zeros_like(sizes)
    unit = directions(load_vectors(vectors, "the Euclidean density"))
    for class_index, block in distances_within_classes(unit, classes, unit, classes):
        totals[class_index] += block.sum()
    return totals / pairs.masked_fill(pairs == 0, torch.nan)


def distance_to_other_classes(
    vectors: Vectors, classes: Tensor, count: int, distance: DensityDistance = "cosine"
) -> Tensor:
    """Mean distance of the direction m_u of each class mean to all others, (count,) float64; NaN for absent classes.

    For cosine, over C classes:  mean (1 − m_u·m_v) = 1 − (m_u·Σ m_v − ‖m_u‖²) / (C − 1).
    """
    present = classes.bincount(minlength=count) > 0
    means = directions(sum_by_group(vectors, classes, count, unit=True)[present])
    others = len(means) - 1
    if not others:
        raise EquimetricError("all vectors are of one class; a distance between classes needs at least two")
    if distance == "cosine":
        mean_distance = 1 - (means @ means.sum(dim=0) - means.square().sum(dim=1)) / others
    else:
        _check_distance(distance)
        blocks = slices(len(means), rows_per_tile(means))
        mean_distance = torch.cat([torch.cdist(means[rows], means).sum(dim=1) for rows in blocks]) / others
    distances = torch.full((count,), torch.nan, dtype=torch.float64, device=vectors.device)
    distances[present] = mean_distance
    return distances


def distance_between_classes(
    vectors: Vectors, classes: Tensor, count: int, distance: DensityDistance = "cosine"
) -> float:
    """Mean distance of the directions of the class means, over all ordered pairs of different classes."""
    return exact_mean(distance_to_other_classes(vectors, classes, count, distance))


class ClassDensity(Collector):
    """Mean distances within the classes of the queries and to their other classes, (C,); `cosine` or `euclidean`."""

    reads_tiles = False

    def finish(self) -> None:
        """Compute the requested distances."""
        queries = self.sets.queries, self.sets.query_classes, len(self.sets.class_labels)
        within = {metric["distance"] for metric in self.metrics if metric["kind"] != "inter"}
        between = {metric["distance"] for metric in self.metrics if metric["kind"] != "intra"}
        self.within = {distance: distance_within_classes(*queries, distance).cpu() for distance in within}
        self.to_others = {distance: distance_to_other_classes(*queries, distance).cpu() for distance in between}


def _resample(metric: Metric, evaluation: Evaluation) -> ClassStatistic:
    """Intra and ratio are means over classes, the distance between classes kept; inter is a mean over pairs of them."""
    mean = mean_over_class_pairs if metric["kind"] == "inter" else mean_over_classes
    return mean(evaluation.score_per_class[metric.name])


@metric(
    "pi_KIND",
    higher_is_better=False,
    pattern=r"pi_(?P<kind>intra|inter|ratio)(?:_(?P<distance>euclidean))?",
    parameters={"kind": str, "distance": str},
    defaults={"distance": "cosine"},
    examples=("pi_intra", "pi_inter", "pi_ratio", "pi_intra_euclidean", "pi_inter_euclidean", "pi_ratio_euclidean"),
    collectors=(ClassDensity,),
    resample=_resample,
    percent=False,
)
def _density(metric: Metric, evidence: Evidence) -> Score:
    """Density: mean distance within classes, between class means, or the ratio of the two."""
    density, distance = evidence[ClassDensity], metric["distance"]
    if metric["kind"] == "inter":
        return Score(exact_mean(density.to_others[distance]), per_class=density.to_others[distance])
    within = density.within[distance]
    per_class = within / exact_mean(density.to_others[distance]) if metric["kind"] == "ratio" else within
    return Score(exact_mean(per_class), per_class=per_class)


def _check_distance(distance: str) -> None:
    if distance != "euclidean":
        raise unknown_name("distance", distance, ["cosine", "euclidean"])
