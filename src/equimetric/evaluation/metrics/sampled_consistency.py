"""Consistency of data too large to compare all pairs: estimated from some rows of each class, with its error."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.evaluation.engine.scan import scan
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Tile
from equimetric.evaluation.metrics.calibration_range import range_ends, range_thresholds
from equimetric.evaluation.metrics.utility_curves import Consistency, Rate, rate_utility
from equimetric.seeding import derive_seed

__all__ = ["AcceptedByRow", "estimate_consistency"]

HALVINGS = 64
"""How often the sampled rows are split in halves to estimate the sampling error."""


class AcceptedByRow(Collector):
    """Pairs of every query within each of G thresholds, (N, G) positive and negative, and all its pairs, (N,)."""

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
            distance = tile.select_rows(slice(row, row + 1)).distance()[0]
            index = torch.bucketize(distance, self.thresholds.to(distance.dtype))
            index[distance == torch.inf] = width - 1
            same = self.sets.gallery_classes == self.sets.query_classes[query]
            for kind, accepted, total in (
                (same, self.positive, self.positives),
                (~same, self.negative, self.negatives),
            ):
                counts = torch.bincount(index[kind], minlength=width)[:-1].cumsum(0).cpu().numpy()
                accepted[query], total[query] = counts[:-1], counts[-1]


def estimate_consistency(
    sets: LabelledSets,
    sample: int,
    seed: int,
    options: Mapping[str, Any],
    *,
    rate: Rate = "both",
    block_rows: int | None = None,
    progress: bool = False,
) -> Consistency:
    """Consistency of the classes from some rows of each, compared with the whole gallery."""
    rows = _sample_rows(sets, sample, seed)
    sampled = _select_rows(sets, rows)
    distances = pair_distances(sampled, range_only=True, block_rows=block_rows, progress=progress, **options)
    thresholds = range_thresholds([distances], options)
    counts = AcceptedByRow(sampled, thresholds)
    scan(SimilarityMatrix.from_sets(sampled), [counts], block_rows=block_rows, progress=progress)
    classes = sampled.query_classes.cpu().numpy()
    class_indices = np.unique(classes)

    def utilities(subset: Integers) -> Floats:
        class_index = np.searchsorted(class_indices, classes[subset])
        by_class = np.zeros((len(class_indices), len(subset)))
        by_class[class_index, np.arange(len(subset))] = 1
        tpr = (by_class @ counts.positive[subset]) / (by_class @ counts.positives[subset])[:, None]
        tnr = 1 - (by_class @ counts.negative[subset]) / (by_class @ counts.negatives[subset])[:, None]
        return rate_utility(rate, tpr, tnr, options["utility_c"])

    generator = np.random.default_rng(derive_seed(seed, "halves of sampled rows"))
    halves = tuple(
        (utilities(half), utilities(other_half))
        for half, other_half in (_split_halves(classes, generator) for _ in range(HALVINGS))
    )
    return Consistency(
        thresholds,
        utilities(np.arange(len(classes))),
        tuple(sets.class_labels[index] for index in class_indices),
        class_indices,
        range_ends(thresholds),
        sampled=len(rows),
        sampled_share=len(rows) / len(sets.queries),
        halves=halves,
        rate=rate,
    )


def _sample_rows(sets: LabelledSets, sample: int, seed: int) -> Tensor:
    """Random rows with positive pairs, of every class in proportion to its size, at least two."""
    classes = sets.query_classes.cpu().numpy()
    usable = np.flatnonzero(sets.num_relevant.cpu().numpy() > 0)
    generator = np.random.default_rng(derive_seed(seed, "stratified rows"))
    shuffled = generator.permutation(usable)
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    sizes = np.bincount(classes[by_class])
    within = np.arange(len(by_class)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    target_sizes = np.maximum(2, np.round(sizes * min(1.0, sample / len(usable))))
    if sample < 2 * np.count_nonzero(sizes):
        raise EquimetricError(
            f"sample is {sample} rows for {np.count_nonzero(sizes)} classes; give at least two for each class"
        )
    rows = by_class[(within < np.repeat(target_sizes, sizes)) & (np.repeat(sizes, sizes) >= 2)]
    return torch.from_numpy(np.sort(rows)).to(sets.queries.device)


def _select_rows(sets: LabelledSets, rows: Tensor) -> LabelledSets:
    """Some queries against the whole gallery; a query that is in the gallery is still not compared with itself."""
    index = torch.full((len(sets.queries),), -1, dtype=torch.int64, device=rows.device)
    index[rows] = torch.arange(len(rows), device=rows.device)
    excluded = sets.excluded if sets.excluded is not None else rows.new_empty(0, 2)
    if sets.gallery is None:
        excluded = torch.cat([rows[:, None].expand(-1, 2), excluded])
    excluded = torch.stack([index[excluded[:, 0]], excluded[:, 1]], dim=1)
    return replace(
        sets,
        queries=sets.queries[rows],
        gallery=sets.gallery_vectors,
        items=None,
        query_classes=sets.query_classes[rows],
        labels=tuple(str(sets.class_labels[class_index]) for class_index in sets.query_classes[rows].tolist()),
        excluded=excluded[excluded[:, 0] >= 0],
    )


def _split_halves(classes: Integers, generator: np.random.Generator) -> tuple[Integers, Integers]:
    """Split the rows at random, each class in halves; an odd row goes to a random half."""
    shuffled = generator.permutation(len(classes))
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    _, start, sizes = np.unique(classes[by_class], return_index=True, return_counts=True)
    offset = np.repeat(generator.integers(0, 2, len(sizes)), sizes)
    even = (np.arange(len(by_class)) - np.repeat(start, sizes) + offset) % 2 == 0
    return by_class[even], by_class[~even]
