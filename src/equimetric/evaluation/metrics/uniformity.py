"""Uniformity: how evenly the vectors are spread.

Wang, Isola: Understanding contrastive representation learning through alignment and uniformity on the hypersphere
(2020). With a separate gallery it is taken over the compared pairs of a query and a gallery item.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.engine.class_sums import distances_within_classes
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.label_sets import MultiLabelSets
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.tiles import Strip, Tile
from equimetric.evaluation.evidence import Detail, Evidence, Score
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.metrics.alignment import DECIMAL, check_vector_distances
from equimetric.evaluation.resampling.class_statistics import ClassStatistic, shift_to
from equimetric.evaluation.result import Evaluation
from equimetric.ops.blocks import slices

__all__ = ["ClassPotentials", "PairPotential"]

POTENTIAL_ENTRIES = 2**18
"""Similarities turned into potentials at a time; they should stay in the cache."""

LARGE_EXPONENT = 300.0
"""Potentials e^{−x} up to this are added as they are; float64 ends at e^{−745}."""


@dataclass(frozen=True)
class ClassPotentials(Detail):
    """Σ e^{−t d²} of each class (C,), over all its pairs and over those within it, and the numbers of these pairs."""

    metric: str
    potential: Floats
    within: Floats
    pairs: Floats
    pairs_within: Floats

    def document(self) -> dict[str, Any]:
        """One entry that names the metric."""
        values = {name: getattr(self, name) for name in ("potential", "within", "pairs", "pairs_within")}
        return {f"{self.metric} of classes": values}


class PairPotential(Collector):
    """Σ e^{−t d²} over the pairs of every query, (N,) float64, for each requested t.

    Unit vectors have d² ≤ 4 and are summed up as they are. Vectors of any length have potentials that no number is
    small enough for, so their logarithms are kept instead.
    """

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], metrics: Sequence[Metric]) -> None:
        super().__init__(sets, options, metrics)
        check_vector_distances(sets, "uniformity")
        self.logarithms = sets.geometry != "cosine" or 4 * max(metric["t"] for metric in metrics) > LARGE_EXPONENT
        zeros = torch.zeros(len(sets.queries), dtype=torch.float64, device=sets.queries.device)
        nothing = zeros.log() if self.logarithms else zeros
        self.sums: dict[float, Tensor] = {metric["t"]: nothing.clone() for metric in metrics}

    def collect(self, tile: Tile) -> None:
        """Add the potentials of the tile; excluded pairs have none."""
        for some in _cached_rows(tile.similarity):
            for t, potentials in self.potentials(tile.part(some).distance()):
                self.add(t, tile.rows[some], potentials, dim=1)

    def potentials(self, distance: Tensor) -> Iterator[tuple[float, Tensor]]:
        """Each t with e^{−t d²} of these distances, or with its logarithm."""
        squared_distance = distance.double().square_() if self.logarithms else distance.square_()
        for t in self.sums:
            exponents = -t * squared_distance
            yield t, exponents if self.logarithms else exponents.exp_()

    def add(self, t: float, queries: Tensor, potentials: Tensor, *, dim: int) -> None:
        """Add the potentials along one dimension to those of the queries along the other."""
        sums = self.sums[t]
        if self.logarithms:
            sums[queries] = torch.logaddexp(sums[queries], potentials.logsumexp(dim))
        else:
            sums[queries] += potentials.sum(dim=dim).double()

    def accepts_strips(self) -> bool:
        """A potential is the same from both sides."""
        return True

    def collect_strip(self, strip: Strip) -> None:
        """Pairs with later queries also count for these."""
        own = strip.rows.stop - strip.rows.start
        for some in _cached_rows(strip.similarity):
            queries, later = strip.queries[some], strip.items[own:]
            for t, potentials in self.potentials(strip.matrix.distance(strip.similarity[some], queries)):
                self.add(t, queries, potentials, dim=1)
                self.add(t, later, potentials[:, own:], dim=0)

    def uniformity(self, t: float = 2.0) -> float:
        """Log mean e^{−t d²} over the pairs: lower is more even."""
        pairs = len(self.sets.queries) * self.sets.candidates
        pairs -= 0 if self.sets.excluded is None else len(self.sets.excluded)
        if self.logarithms:
            return min(0.0, float(self.sums[t].logsumexp(0)) - math.log(pairs))
        return math.log(math.fsum(self.sums[t].tolist()) / pairs)

    def by_class(self, metric: Metric) -> ClassPotentials:
        """Of one set: the potentials of each class, in all and within it."""
        classes, count, t = self.sets.query_classes, len(self.sets.class_labels), metric["t"]
        sums = self.sums[t].exp() if self.logarithms else self.sums[t]
        potential = torch.zeros(count, dtype=torch.float64, device=classes.device).index_add_(0, classes, sums)
        within = torch.zeros_like(potential)
        for number, block in distances_within_classes(self.sets.queries, classes, self.sets.queries, classes):
            within[number] += torch.exp(-t * block.square()).sum()
        sizes = classes.bincount(minlength=count).double()
        found = potential, within - sizes, sizes * (len(classes) - 1), sizes * (sizes - 1)
        return ClassPotentials(metric.name, *(values.cpu().numpy() for values in found))


def _resample(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
    """Log mean e^{−t d²} where pairs inside class c count w_c times, those of two classes to first order in both."""
    found = evaluation.detail(ClassPotentials, metric.name)
    if found is None:
        return None
    present = np.flatnonzero(found.pairs)
    within, total = found.within[present], found.potential[present]
    pairs_within, pairs = found.pairs_within[present], found.pairs[present]

    def of_weights(weights: Floats) -> Floats:
        twice = 2 * weights - 1
        potential = weights @ within + twice @ (total - within)
        return np.asarray(np.log(potential / (weights @ pairs_within + twice @ (pairs - pairs_within))))

    return shift_to(evaluation[metric.name], ClassStatistic(present, of_weights))


@metric(
    "uniformity@t=T",
    higher_is_better=False,
    pattern=rf"uniformity(?:@t=(?P<t>{DECIMAL}))?",
    parameters={"t": float},
    defaults={"t": 2.0},
    examples=("uniformity", "uniformity@t=1"),
    collectors=(PairPotential,),
    resample=_resample,
    percent=False,
    multi_label=True,
)
def _uniformity(metric: Metric, evidence: Evidence) -> Score:
    """Uniformity: log of the mean of exp(−T d²) over all pairs (default T = 2)."""
    potential, sets = evidence[PairPotential], evidence.sets
    value = potential.uniformity(metric["t"])
    # Potentials too small for float64 cannot be resampled by class.
    single = not isinstance(sets, MultiLabelSets)
    by_class = single and sets.gallery is None and sets.excluded is None and value > -LARGE_EXPONENT
    return Score(value, details=(potential.by_class(metric),) if by_class else ())


def _cached_rows(similarity: Tensor) -> list[slice]:
    """Slices of rows, few enough to stay in the cache."""
    return slices(len(similarity), max(1, POTENTIAL_ENTRIES // max(1, similarity.shape[1])))
