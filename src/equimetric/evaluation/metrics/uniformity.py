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
from equimetric.evaluation.engine.class_distances import distances_within_classes
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.exact_sums import ExactSums
from equimetric.evaluation.engine.label_sets import MultiLabelSets
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.tiles import Strip, Tile
from equimetric.evaluation.evidence import Detail, Evidence, Score
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.metrics.alignment import DECIMAL, check_vector_distances
from equimetric.evaluation.resampling.class_statistics import ClassStatistic, shift_to_value
from equimetric.evaluation.result import Evaluation
from equimetric.ops.blocks import slices
from equimetric.threads import parallel_map

__all__ = ["ClassPotentials", "PairPotential"]

POTENTIAL_ENTRIES = 2**18
"""Similarities turned into potentials at a time; they should stay in the cache."""

SUMMED_EXPONENT = 20.0
"""Potentials e^{−x} up to this are added as they are, in fixed point, which holds them to nine digits."""
LARGE_EXPONENT = 300.0
"""Potentials e^{−x} up to this can be told from 0 in float64, which ends at e^{−745}."""


@dataclass(frozen=True)
class ClassPotentials(Detail):
    """Σ e^{−t d²} of each class (C,), over all its pairs and over those within it, and the numbers of these pairs."""

    metric: str
    potential: Floats
    within: Floats
    pairs: Floats
    pairs_within: Floats

    def json_entries(self) -> dict[str, Any]:
        """One entry that names the metric."""
        values = {name: getattr(self, name) for name in ("potential", "within", "pairs", "pairs_within")}
        return {f"{self.metric} of classes": values}


class PairPotential(Collector):
    """Σ e^{−t d²} over the pairs of every query, (N,) float64, for each requested t.

    Unit vectors have d² ≤ 4, and for small t their potentials are summed up as they are. Others have potentials that no
    number is small enough for, so their logarithms are kept instead, query by query.
    """

    accepts_columns = True

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], metrics: Sequence[Metric]) -> None:
        super().__init__(sets, options, metrics)
        check_vector_distances(sets, "uniformity")
        self.logarithms = sets.geometry != "cosine" or 4 * max(metric["t"] for metric in metrics) > SUMMED_EXPONENT
        empty = torch.full((len(sets.queries),), -torch.inf, dtype=torch.float64, device=sets.queries.device)
        self.temperatures: tuple[float, ...] = tuple(dict.fromkeys(metric["t"] for metric in metrics))
        self.sums = {t: ExactSums(len(empty), empty.device) for t in self.temperatures if not self.logarithms}
        self.log_sums = {t: empty.clone() for t in self.temperatures if self.logarithms}

    def collect(self, tile: Tile) -> None:
        """Add the potentials of the tile; excluded pairs have none."""
        parts = _cached_rows(tile.similarity)

        def sum_rows(rows: slice) -> list[Tensor]:
            potentials = self._potentials(tile.select_rows(rows).distance())
            return [values.logsumexp(1) if self.logarithms else values.sum(dim=1).double() for values in potentials]

        for rows, sums in zip(parts, parallel_map(sum_rows, parts), strict=True):
            for t, terms in zip(self.temperatures, sums, strict=True):
                self._add(t, tile.rows[rows], terms)

    def _potentials(self, distance: Tensor) -> Iterator[Tensor]:
        """e^{−t d²} of these distances for each t, or its logarithm."""
        squared_distance = distance.double().square_() if self.logarithms else distance.square_()
        for t in self.temperatures:
            exponents = -t * squared_distance
            yield exponents if self.logarithms else exponents.exp_()

    def _add(self, t: float, queries: Tensor, terms: Tensor) -> None:
        if self.logarithms:
            self.log_sums[t][queries] = torch.logaddexp(self.log_sums[t][queries], terms)
        else:
            self.sums[t].add(queries, terms)

    def accepts_strips(self) -> bool:
        """A potential is the same from both sides; logarithms are not added exactly."""
        return not self.logarithms

    def collect_strip(self, strip: Strip) -> None:
        """Pairs with later queries also count for these."""
        parts, num_own = _cached_rows(strip.similarity), strip.num_own_columns
        later = strip.similarity.new_zeros(len(self.temperatures), len(strip.items) - num_own, dtype=torch.float64)

        def sum_both(rows: slice) -> list[tuple[Tensor, Tensor]]:
            distance = strip.matrix.distance(strip.similarity[rows], strip.queries[rows])
            return [(values.sum(dim=1), values[:, num_own:].sum(dim=0)) for values in self._potentials(distance)]

        for rows, sums in zip(parts, parallel_map(sum_both, parts), strict=True):
            for t, total, (row_sums, column_sums) in zip(self.temperatures, later, sums, strict=True):
                self._add(t, strip.queries[rows], row_sums.double())
                total += column_sums
        for t, total in zip(self.temperatures, later, strict=True):
            self._add(t, strip.items[num_own:], total)

    def partial(self, rows: Tensor) -> Any:
        """The sums of all queries, or the logarithms of these."""
        return [sums.partial() for sums in self.sums.values()], rows, [sums[rows] for sums in self.log_sums.values()]

    def merge(self, partial: Any) -> None:
        """Add the sums of other pairs, or take the logarithms of other queries."""
        added, rows, logarithms = partial
        for sums, others in zip(self.sums.values(), added, strict=True):
            sums.merge(others)
        for log_sums, row_logarithms in zip(self.log_sums.values(), logarithms, strict=True):
            log_sums[rows] = row_logarithms

    def uniformity(self, t: float = 2.0) -> float:
        """Log mean e^{−t d²} over the pairs: lower is more even."""
        pairs = len(self.sets.queries) * self.sets.candidates
        pairs -= 0 if self.sets.excluded is None else len(self.sets.excluded)
        if self.logarithms:
            return min(0.0, float(self.log_sums[t].logsumexp(0)) - math.log(pairs))
        return math.log(math.fsum(self.sums[t].total().tolist()) / pairs)

    def by_class(self, metric: Metric) -> ClassPotentials:
        """The potentials of each class of one set, over all its pairs and within it."""
        classes, count, t = self.sets.query_classes, len(self.sets.class_labels), metric["t"]
        sums = self.log_sums[t].exp() if self.logarithms else self.sums[t].total()
        potential = torch.zeros(count, dtype=torch.float64, device=classes.device).index_add_(0, classes, sums)
        within = torch.zeros_like(potential)
        for class_index, block in distances_within_classes(self.sets.queries, classes, self.sets.queries, classes):
            within[class_index] += torch.exp(-t * block.square()).sum()
        sizes = classes.bincount(minlength=count).double()
        totals = potential, within - sizes, sizes * (len(classes) - 1), sizes * (sizes - 1)
        return ClassPotentials(metric.name, *(values.cpu().numpy() for values in totals))


def _resample(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
    """Log mean e^{−t d²} where pairs inside class c count w_c times, those of two classes to first order in both."""
    potentials = evaluation.detail(ClassPotentials, metric.name)
    if potentials is None:
        return None
    present = np.flatnonzero(potentials.pairs)
    within, total = potentials.within[present], potentials.potential[present]
    pairs_within, pairs = potentials.pairs_within[present], potentials.pairs[present]

    def of_weights(weights: Floats) -> Floats:
        pair_weights = 2 * weights - 1
        potential = weights @ within + pair_weights @ (total - within)
        return np.asarray(np.log(potential / (weights @ pairs_within + pair_weights @ (pairs - pairs_within))))

    return shift_to_value(evaluation[metric.name], ClassStatistic(present, of_weights))


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
