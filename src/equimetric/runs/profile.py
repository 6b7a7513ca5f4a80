"""Profile of a run's test classes for a report: thresholds, nearest neighbours, a map."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.calibration.new_classes import bound_new_classes
from equimetric.calibration.rates import class_counts
from equimetric.calibration.targets import FalseAccepts, operating_point
from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import PairDistances, pair_distances
from equimetric.evaluation.result import Evaluation
from equimetric.evaluation.threshold_profile import ThresholdProfile, count_pairs, profile_distances
from equimetric.geometry import unit
from equimetric.runs.configuration import EvaluationConfig
from equimetric.runs.evaluation import LabelledEmbeddings
from equimetric.seeding import derive_seed

__all__ = ["CertifiedPoint", "EmbeddingMap", "RunProfile", "certify", "profile_part"]

CERTIFIED_FAR = (1e-3, 1e-2)
"""The first of these false accept rates with enough pairs is certified."""
CONFIDENCE = 0.95
MAP_IMAGES = 500
PERPLEXITY = 30.0
MIN_SPREAD = 1e-6
"""Of a map's unit vectors, along the axis on which they spread most."""


@dataclass(frozen=True)
class CertifiedPoint:
    """The threshold that `calibrate` chooses on these classes for a false accept rate, and its rates.

    threshold   pairs closer than it are accepted; a negated score where a cohort normalises
    far, frr    rates of all pairs
    far_bound, frr_bound  upper bounds for new classes, of 95 % confidence; NaN where there is none
    counts      accepted pairs at the threshold; None of a run whose version did not store them
    """

    target_far: float
    threshold: float
    far: float
    frr: float
    far_bound: float
    frr_bound: float
    counts: ThresholdProfile | None = field(default=None, compare=False)

    @property
    def numbers(self) -> dict[str, float]:
        """All but the counts, by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "counts"}


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """Some test images in a plane, whole classes: rows (M,) of the data set, places (M, 2) from t-SNE."""

    rows: NDArray[Any]
    places: NDArray[Any]


@dataclass(frozen=True, eq=False)
class RunProfile:
    """Profile of a run's test classes; parts are None where the data do not allow them.

    Attributes:
        thresholds: accepted pairs at every threshold; plain: the same without the cohort, where there is one.
        certified: the threshold of a certificate.
        nearest: (N,) distance of each query from its nearest neighbour.
        map: test images in a plane.
    """

    thresholds: ThresholdProfile | None = None
    plain: ThresholdProfile | None = None
    certified: CertifiedPoint | None = None
    nearest: NDArray[Any] | None = None
    map: EmbeddingMap | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing."""
        return not self.arrays()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for storage."""
        arrays: dict[str, NDArray[Any]] = {}
        counts = None if self.certified is None else self.certified.counts
        for name, profile in (("thresholds", self.thresholds), ("plain", self.plain), ("at_certified", counts)):
            if profile is not None:
                arrays |= {f"{name}.{key}": array for key, array in profile.arrays().items()}
        if self.certified is not None:
            arrays |= {f"certified.{key}": np.asarray(value) for key, value in self.certified.numbers.items()}
        if self.nearest is not None:
            arrays["nearest"] = self.nearest
        if self.map is not None:
            arrays |= {"map.rows": self.map.rows, "map.places": self.map.places}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> RunProfile:
        """The profile behind `arrays`."""

        def part(name: str) -> dict[str, NDArray[Any]]:
            return {key.partition(".")[2]: array for key, array in arrays.items() if key.startswith(f"{name}.")}

        def profile(name: str) -> ThresholdProfile | None:
            values = part(name)
            return ThresholdProfile.from_arrays(values) if values else None

        # Files of earlier versions call the target rate "wanted".
        numbers = {"target_far" if key == "wanted" else key: float(value) for key, value in part("certified").items()}
        places = part("map")
        return cls(
            thresholds=profile("thresholds"),
            plain=profile("plain"),
            certified=CertifiedPoint(**numbers, counts=profile("at_certified")) if numbers else None,
            nearest=arrays.get("nearest"),
            map=EmbeddingMap(**places) if places else None,
        )


def profile_part(embedded: LabelledEmbeddings, scores: Evaluation, config: EvaluationConfig) -> RunProfile:
    """The profile of labelled embeddings, given their scores with neighbours.

    Thresholds are those of all pairs: items that are compared only within parents have none.
    """
    thresholds = plain = certified = None
    if embedded.parents is None and config.across is None:
        with suppress(EquimetricError):
            distances = measure_pairs(embedded, config)
            thresholds, certified = profile_distances(distances), certify(distances)
            if embedded.cohort is not None:
                plain = profile_distances(measure_pairs(embedded.plain(), config))
    return RunProfile(thresholds, plain, certified, nearest_distances(embedded, scores), compute_map(embedded))


def measure_pairs(embedded: LabelledEmbeddings, config: EvaluationConfig) -> PairDistances:
    """The distances of all pairs, in the geometry of the run."""
    return pair_distances(prepare_sets(**embedded.arrays(), geometry=config.compared_by()))


def certify(distances: PairDistances) -> CertifiedPoint | None:
    """The threshold of the smallest false accept rate with enough pairs; None where there is none."""
    for far in CERTIFIED_FAR:
        target = FalseAccepts(far)
        try:
            target.check_support(distances, "")
        except EquimetricError:
            continue
        point = operating_point(distances, target.threshold(distances))
        bounds = bound_new_classes(class_counts(distances, point.threshold), CONFIDENCE)
        far_bound, frr_bound = (math.nan if bound is None else bound for bound in (bounds.far, bounds.frr))
        counts = count_pairs(distances, np.asarray([point.threshold]), (0, 1), strictly_below=True)
        return CertifiedPoint(far, point.threshold, point.far, 1 - point.tar, far_bound, frr_bound, counts)
    return None


def nearest_distances(embedded: LabelledEmbeddings, scores: Evaluation) -> NDArray[Any] | None:
    """(N,) Euclidean distance of the unit vectors of each query and its nearest neighbour; NaN where it has none."""
    if scores.neighbours is None or not scores.neighbours.shape[1]:
        return None
    queries = embedded.embeddings if embedded.query is None else embedded.embeddings[embedded.query]
    gallery = embedded.embeddings if embedded.gallery is None else embedded.embeddings[embedded.gallery]
    nearest = scores.neighbours[:, 0]
    distance = (unit(queries) - unit(gallery[nearest.clamp_min(0)])).norm(dim=1)
    return torch.where(nearest < 0, math.nan, distance.float()).numpy()


def compute_map(embedded: LabelledEmbeddings) -> EmbeddingMap | None:
    """Some classes in a plane, the same for every method; None of too few images, or of embeddings in one point."""
    chosen = draw_whole_classes(embedded.labels)
    if len(chosen) < 5:
        return None
    from sklearn.manifold import TSNE

    vectors = unit(embedded.embeddings[chosen].double()).numpy()
    # Without any spread t-SNE divides by zero and ends the process.
    if np.ptp(vectors, axis=0).max() < MIN_SPREAD:
        return None
    perplexity = min(PERPLEXITY, (len(chosen) - 1) / 3)
    layout = TSNE(init="pca", random_state=derive_seed(0, "map of a run") % 2**32, perplexity=perplexity)
    with warnings.catch_warnings():
        # Collapsed embeddings make a poor picture, as they should.
        warnings.simplefilter("ignore")
        places = layout.fit_transform(vectors)
    if not np.isfinite(places).all():
        return None
    return EmbeddingMap(embedded.rows[chosen].numpy(), places.astype(np.float32))


def draw_whole_classes(labels: Tensor) -> Tensor:
    """Ascending positions of whole classes, drawn in an order of their own, while they have few images."""
    classes, sizes = map(torch.from_numpy, np.unique(labels.numpy(), return_counts=True))
    generator = torch.Generator().manual_seed(derive_seed(0, "classes of a map"))
    order = torch.randperm(len(classes), generator=generator)
    chosen = classes[order[sizes[order].cumsum(0) <= MAP_IMAGES]]
    return torch.isin(labels, chosen).nonzero()[:, 0]
