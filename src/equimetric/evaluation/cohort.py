"""Cohort normalisation: similarities that take into account how crowded the neighbourhoods of both sides are.

A query in a crowded region is close to everything, one in an empty region to nothing, so one threshold does not suit
both. With m(x) and s(x), mean and standard deviation of the K largest cosines of x to a cohort of other classes,

    mean form  s'(x, y) = s(x, y) − λ ½ (m(x) + m(y))
                        = (x, −½ λ m(x), 1) · (y, 1, −½ λ m(y))
    full form  s'(x, y) = ½ [(s(x, y) − m(x)) / s(x) + (s(x, y) − m(y)) / s(y)]
                        = ½ (x / s(x), x, −m(x) / s(x), 1) · (y, y / s(y), 1, −m(y) / s(y))

are inner products of extended vectors, so that the scan over tiles and any vector index work unchanged. Known from
speaker verification as S-norm. s' is symmetric but no cosine, and has no distance: thresholds, and the range over which
`opis` integrates, are scores; compare them with those of strength 0, which are the plain cosines.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError, EquimetricWarning, unknown_name
from equimetric.evaluation.engine.cohort_statistics import CohortStatistics, cohort_statistics
from equimetric.evaluation.engine.compared_vectors import normalize_rows
from equimetric.evaluation.engine.inputs import (
    EmbeddingsLike,
    GeometryLike,
    LabelArray,
    LabelsLike,
    convert_embeddings,
    convert_labels,
)
from equimetric.evaluation.engine.label_sets import require_one_class
from equimetric.evaluation.engine.mapped_vectors import load_vectors
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.families import METRICS, Metric

__all__ = ["FORMS", "MIN_COHORT_CLASSES", "Cohort", "CohortForm", "check_cohort_metrics", "describe_narrow"]

CohortForm = Literal["mean", "full"]
FORMS: tuple[CohortForm, ...] = ("mean", "full")
MIN_STD = 1e-3
MIN_COHORT_CLASSES = 25
"""With fewer cohort classes normalisation may do harm."""


@dataclass(frozen=True, eq=False)
class Cohort:
    """Embeddings of other classes, and how similarities are normalised by them.

    embeddings  (C, D), at least one; brought to unit length
    labels      (C,) their classes, of the same kind as those of the samples: a sample's own class never counts in its
                cohort. Without labels every cohort embedding counts for every sample
    strength    λ of the mean form, up to 1; 0 is no normalisation in either form. The full form has no other
    nearest     K, the number of most similar ones that count; all where there are fewer
    form        "mean" or "full"
    """

    embeddings: EmbeddingsLike
    labels: LabelsLike | None = None
    strength: float = 0.5
    nearest: int = 50
    form: CohortForm = "mean"

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise unknown_name("form of a cohort", self.form, FORMS)
        if not 0 <= self.strength <= 1:
            raise EquimetricError(f"the strength of a cohort lies between 0 and 1, not {self.strength}")
        if self.nearest < 1:
            raise EquimetricError(f"nearest is {self.nearest}; a cohort needs at least 1")

    @property
    def title(self) -> str:
        """What a result calls the normalised cosines."""
        return "cosine, full cohort" if self.form == "full" else "cosine, cohort"

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the values of the embeddings, with their type and shape."""
        vectors = np.ascontiguousarray(convert_embeddings(self.embeddings, "cohort embeddings").cpu().numpy())
        return hashlib.sha256(f"{vectors.dtype.str} {vectors.shape}\n".encode() + vectors.tobytes()).hexdigest()

    @cached_property
    def classes(self) -> tuple[int, ...] | tuple[str, ...] | None:
        """The distinct labels, ascending; None without labels."""
        return None if self._labels is None else tuple(np.unique(self._labels).tolist())

    def require_cosine(self, geometry: GeometryLike) -> None:
        """Raise an error for another geometry."""
        if geometry != "cosine":
            raise EquimetricError(f"a cohort normalises cosines; leave geometry = {geometry!r} out, or the cohort")

    def warn_if_narrow(self) -> None:
        """Warn of a cohort that is known to have few classes."""
        if self.classes is not None and self.strength > 0 and len(self.classes) < MIN_COHORT_CLASSES:
            warnings.warn(describe_narrow(len(self.classes)), EquimetricWarning, stacklevel=4)

    def extend(self, embeddings: EmbeddingsLike, labels: LabelsLike | None = None) -> tuple[Tensor, Tensor]:
        """(N, E) extended vectors as queries and as gallery items; E = D + 2, or 2D + 2 in the full form.

        s'(x, y) is the inner product of x as a query and y as an item. Embeddings are brought to unit length first:
        class means are samples like any other, with an m and s of their own.
        """
        unit = normalize_rows(convert_embeddings(embeddings, "embeddings"), "embeddings")
        own_rows = None
        if labels is not None:
            names, classes = np.unique(convert_labels(labels, "labels", len(unit)), return_inverse=True)
            own_rows = self._own_rows(names, torch.from_numpy(classes).to(unit.device))
        statistics = self.compute_statistics(unit, own_rows)
        return self._as_queries(unit, statistics), self.extend_items(unit, statistics)

    def normalize(
        self, sets: LabelledSets, statistics: tuple[CohortStatistics, CohortStatistics] | None = None
    ) -> LabelledSets:
        """Sets of unit vectors → sets of extended vectors; `statistics` of queries and gallery, where they are known.

        One set stays one set: it is compared with itself, every pair once.
        """
        query_statistics, item_statistics = self.set_statistics(sets) if statistics is None else statistics
        queries = self._as_queries(load_vectors(sets.queries, "a cohort"), query_statistics)
        items = self.extend_items(load_vectors(sets.gallery_vectors, "a cohort"), item_statistics)
        gallery_vectors = {"gallery": None, "items": items} if sets.gallery is None else {"gallery": items}
        return replace(sets, queries=queries, geometry="dot", title=self.title, cohort=self, **gallery_vectors)

    def set_statistics(self, sets: LabelledSets) -> tuple[CohortStatistics, CohortStatistics]:
        """The cohort statistics of queries and gallery items; a sample's own class does not count."""
        if self._labels is not None:
            require_one_class(sets, "a cohort with labels")
        queries = load_vectors(sets.queries, "a cohort")
        statistics = self.class_statistics(queries, sets.query_classes, sets.class_labels)
        if sets.gallery is None:
            return statistics, statistics
        gallery = load_vectors(sets.gallery, "a cohort")
        return statistics, self.class_statistics(gallery, sets.gallery_classes, sets.class_labels)

    def class_statistics(
        self, unit: Tensor, classes: Tensor, class_labels: Sequence[int] | Sequence[str]
    ) -> CohortStatistics:
        """The cohort statistics of (N, D) unit vectors of numbered classes (N,), each without its own class."""
        return self.compute_statistics(unit, self._own_rows(np.array(class_labels), classes))

    def compute_statistics(self, unit: Tensor, own_rows: tuple[Tensor, Tensor] | None = None) -> CohortStatistics:
        """The statistics of (N, D) unit vectors, without their `own` rows of the cohort, which is in order of class."""
        if self.unit.shape[1] != unit.shape[1]:
            raise EquimetricError(f"the cohort has dimension {self.unit.shape[1]}, the embeddings {unit.shape[1]}")
        if self.strength == 0:
            zeros = unit.new_zeros(len(unit), dtype=torch.float64)
            return CohortStatistics(zeros, zeros)
        return cohort_statistics(unit, self.unit.to(unit), self.nearest, own_rows)

    def plain_items(self, extended: Tensor) -> Tensor:
        """(N, D) the unit vectors that gallery items (N, E) were before."""
        return extended[:, : self.unit.shape[1]]

    @cached_property
    def _labels(self) -> LabelArray | None:
        if self.labels is None:
            return None
        return convert_labels(self.labels, "cohort labels", len(self.embeddings))

    @cached_property
    def unit(self) -> Tensor:
        """(C, D) unit vectors, class by class."""
        unit = normalize_rows(convert_embeddings(self.embeddings, "cohort embeddings"), "cohort embeddings")
        if self._labels is None:
            return unit
        return unit[torch.from_numpy(self._labels.argsort(kind="stable")).to(unit.device)]

    def _own_rows(self, names: NDArray[Any], classes: Tensor) -> tuple[Tensor, Tensor] | None:
        """The first row of each sample's own class in the cohort, and the row after the last, (N,) and (N,)."""
        if self._labels is None:
            return None
        if self._labels.dtype.kind != names.dtype.kind:
            raise EquimetricError(
                "labels and cohort labels must both be integers or both be strings to be compared; leave the cohort's "
                "out where it shares no class with the samples"
            )
        ascending = np.sort(self._labels)
        start, stop = (torch.from_numpy(np.searchsorted(ascending, names, side)) for side in ("left", "right"))
        if bool((stop == start).all()):
            return None
        if bool((stop - start == len(ascending)).any()):
            raise EquimetricError(
                f"all cohort embeddings are of class {ascending[0]!s}, and a sample's own class does not count "
                "in its cohort; give other classes"
            )
        return start.to(classes.device)[classes], stop.to(classes.device)[classes]

    def _as_queries(self, unit: Tensor, statistics: CohortStatistics) -> Tensor:
        ones = unit.new_ones(len(unit), 1)
        if self._is_full:
            scale = 1 / statistics.std.clamp(min=MIN_STD)[:, None]
            shift = -statistics.mean[:, None] * scale
            # Half of it on one side alone: a power of two rounds nothing.
            return torch.cat([(unit * scale).to(unit), unit, shift.to(unit), ones], 1) / 2
        return torch.cat([unit, self._mean_shift(unit, statistics), ones], 1)

    def extend_items(self, unit: Tensor, statistics: CohortStatistics) -> Tensor:
        """(N, E) gallery items of unit vectors (N, D), which stay their first D numbers."""
        ones = unit.new_ones(len(unit), 1)
        if self._is_full:
            scale = 1 / statistics.std.clamp(min=MIN_STD)[:, None]
            shift = -statistics.mean[:, None] * scale
            return torch.cat([unit, (unit * scale).to(unit), ones, shift.to(unit)], 1)
        return torch.cat([unit, ones, self._mean_shift(unit, statistics)], 1)

    @property
    def _is_full(self) -> bool:
        return self.form == "full" and self.strength > 0

    def _mean_shift(self, unit: Tensor, statistics: CohortStatistics) -> Tensor:
        """−½ λ m(x), (N, 1)."""
        return (statistics.mean * (-self.strength / 2)).to(unit)[:, None]


def describe_narrow(classes: int) -> str:
    """The warning of a cohort of few classes."""
    return (
        f"the cohort has {classes} classes; with fewer than {MIN_COHORT_CLASSES} a few of them decide what is crowded, "
        "which may do harm: give more, or choose the strength on validation classes"
    )


def check_cohort_metrics(metrics: tuple[Metric, ...]) -> None:
    """Raise an error for a metric that reads embeddings, or distances: extended vectors have neither meaning."""
    for metric in metrics:
        collectors = METRICS[metric.family].collectors
        if not collectors or not all(collector.reads_tiles for collector in collectors):
            raise EquimetricError(
                f"{metric.name!r} describes embeddings, which a cohort does not change; leave it out, or the cohort"
            )
        if "distance" in metric.parameters:
            raise EquimetricError(
                f"{metric.name!r} is at a distance, and similarities normalised by a cohort have none; leave it out, "
                "or the cohort"
            )
