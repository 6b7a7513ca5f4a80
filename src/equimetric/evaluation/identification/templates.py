"""Class means as the entries of a gallery; a probe is never part of the mean it is compared with.

With a cohort a mean is a vector like any other: brought to unit length, measured against the cohort, then extended. The
mean of extended vectors would be another score.
"""

from functools import cached_property

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.cohort_statistics import CohortStatistics
from equimetric.evaluation.engine.mapped_vectors import load_vectors
from equimetric.evaluation.engine.nearest import find_nearest
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Tile
from equimetric.evaluation.identification.draws import GalleryDraw
from equimetric.ops.blocks import TILE_BYTES, directions, slices, sum_by_group

__all__ = ["MeanTemplates"]

GEOMETRIES = ("cosine", "euclidean", "dot")


class MeanTemplates:
    """The mean of the enrolled items of each of the I identities of a draw, in float64; at unit length for cosine."""

    def __init__(self, sets: LabelledSets, draw: GalleryDraw) -> None:
        if sets.custom_geometry is not None or sets.geometry not in GEOMETRIES:
            raise EquimetricError(
                f"a class mean cannot be compared by {sets.geometry}; use the geometry "
                f"{', '.join(GEOMETRIES[:-1])} or {GEOMETRIES[-1]}, or identify by 'item'"
            )
        self.sets, self.items, self.mated = sets, draw.items, draw.mated
        self.vectors = sets.gallery_vectors
        if sets.cohort is not None:
            self.vectors = sets.cohort.plain_items(load_vectors(sets.gallery_vectors, "a cohort"))
        self.identities, entry = torch.unique(sets.gallery_classes[draw.items], return_inverse=True)
        self.index = torch.full((len(sets.class_labels),), -1, device=entry.device)
        self.index[self.identities] = torch.arange(len(self.identities), device=entry.device)
        self.sums = sum_by_group(self.vectors[draw.items], entry, len(self.identities))
        self.counts = torch.bincount(entry, minlength=len(self.identities))

    def search(self, rows: Tensor, mated: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Class and distance (P, 1) of the nearest mean, and those of the next one (P,)."""
        queries, index = self.sets.queries[rows].double(), self.index[self.sets.query_classes[rows]]
        entry = torch.arange(len(rows), device=rows.device)
        owned = torch.stack([entry, index], 1)[index >= 0]
        matrix = SimilarityMatrix(queries, self.means(), geometry=self.sets.geometry, excluded=owned)
        columns = find_nearest(Tile(matrix, entry, matrix.similarity(entry)), min(2, len(self.sums)))
        products = matrix.exact_products(
            entry.repeat_interleave(columns.shape[1]), columns.clamp(min=0).flatten()
        ).view(columns.shape)
        others = matrix.distance(products, entry).masked_fill_(columns < 0, torch.inf)
        classes = self.identities[columns].masked_fill(columns < 0, -1)
        # The own mean stands apart, because it depends on the probe.
        own_class = self.sets.query_classes[rows].masked_fill(~mated, -1)
        distance = torch.cat([self._own_distance(queries, rows, mated)[:, None], others], 1)
        classes = torch.cat([own_class[:, None], classes], 1)
        # By distance, equal ones by the lower class.
        classes, order = classes.sort(dim=1)
        distance = distance.gather(1, order)
        distance, order = distance.sort(dim=1, stable=True)
        classes = classes.gather(1, order)
        return classes[:, :1], distance[:, :1], (classes[:, 1], distance[:, 1])

    def compute_statistics(self, *, without_probes: bool) -> None:
        """Measure the means against the cohort, before several processes search: bits depend on their threads."""
        _ = self._statistics, self._own_statistics if without_probes else None

    def means(self) -> Tensor:
        """(I, D) the means as gallery items; computed anew, because all draws together may be large."""
        return self._means(self.sums, self.counts, self._statistics)

    def count_accepted(self, rows: Tensor, threshold: float) -> int:
        """Number of pairs of a query and a mean closer than the threshold."""
        accepted = 0
        for block in slices(len(rows), max(1, TILE_BYTES // (8 * len(self.sums)))):
            queries = self.sets.queries[rows[block]].double()
            matrix = SimilarityMatrix(queries, self.means(), geometry=self.sets.geometry)
            entry = torch.arange(len(queries), device=rows.device)
            accepted += int((matrix.distance(matrix.similarity(entry), entry) < threshold).sum())
        return accepted

    def _own_distance(self, queries: Tensor, rows: Tensor, mated: Tensor) -> Tensor:
        """(P,) distance to the mean of the own class without the probe; +∞ for those without a mate."""
        distance = torch.full((len(rows),), torch.inf, dtype=torch.float64, device=rows.device)
        which = mated.nonzero().flatten()
        if not len(which):
            return distance
        sums, counts = self._without_probes(rows[which])
        statistics = None if self._own_statistics is None else self._own_statistics.select(rows[which])
        matrix = SimilarityMatrix(queries[which], self._means(sums, counts, statistics), geometry=self.sets.geometry)
        pairs = torch.arange(len(which), device=rows.device)
        distance[which] = matrix.distance(matrix.exact_products(pairs, pairs)[:, None], pairs)[:, 0]
        return distance

    def _without_probes(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(P, D) and (P,) sums and counts of the enrolled items of each query's class, without the query."""
        index = self.index[self.sets.query_classes[rows]]
        sums, counts = self.sums[index], self.counts[index]
        probe, item = self._same_images(rows)
        sums.index_add_(0, probe, self.vectors[item].double(), alpha=-1)
        counts.index_add_(0, probe, torch.ones_like(probe), alpha=-1)
        return sums, counts

    def _same_images(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Positions among the rows, and enrolled items of their class that show the same image."""
        sets, entry = self.sets, torch.arange(len(rows), device=rows.device)
        position = torch.full((len(sets.queries),), -1, device=rows.device)
        position[rows] = entry
        pairs = torch.empty(0, 2, dtype=torch.int64, device=rows.device) if sets.excluded is None else sets.excluded
        if sets.gallery is None:
            pairs = torch.cat([torch.stack([rows, rows], 1), pairs])
        query, item = pairs.unbind(1)
        enrolled = torch.zeros(len(sets.gallery_classes), dtype=torch.bool, device=rows.device)
        enrolled[self.items] = True
        valid = (position[query] >= 0) & enrolled[item] & (sets.query_classes[query] == sets.gallery_classes[item])
        return position[query[valid]], item[valid]

    def _means(self, sums: Tensor, counts: Tensor, statistics: CohortStatistics | None) -> Tensor:
        if self.sets.cohort is not None and statistics is not None:
            return self.sets.cohort.extend_items(directions(sums), statistics)
        return directions(sums) if self.sets.geometry == "cosine" else sums / counts[:, None]

    @cached_property
    def _statistics(self) -> CohortStatistics | None:
        """Cohort statistics of the I means; None without a cohort."""
        if self.sets.cohort is None:
            return None
        return self.sets.cohort.class_statistics(directions(self.sums), self.identities, self.sets.class_labels)

    @cached_property
    def _own_statistics(self) -> CohortStatistics | None:
        """(N,) those of the mated probes' own means, for any tiles: last bits depend on the rows of a product."""
        cohort, rows = self.sets.cohort, self.mated.nonzero().flatten()
        if cohort is None:
            return None
        mean, std = (self.sums.new_zeros(len(self.sets.queries)) for _ in range(2))
        for block in slices(len(rows), max(1, TILE_BYTES // (8 * self.sums.shape[1]))):
            block_rows = rows[block]
            unit = directions(self._without_probes(block_rows)[0])
            statistics = cohort.class_statistics(unit, self.sets.query_classes[block_rows], self.sets.class_labels)
            mean[block_rows], std[block_rows] = statistics.mean, statistics.std
        return CohortStatistics(mean, std)
