"""What each class accepts at one threshold, image by image and class by class, in a scan of its own.

For a class with n images k and C other classes c, a_kc is the share of the images of c that image k accepts: an n × C
table whose mean is the false accept rate of the class, every other class counting alike. Pairs are dependent, because
they share images and classes, so the variance of that mean has two directions:

    v_k = var_k(row means) / n        how much the images of the class differ
    v_c = var_c(column means) / C     how much the other classes differ
    v_e = Σ (a_kc − row mean − column mean + mean)² / ((n − 1) (C − 1) n C)

v_k and v_c both contain what v_e estimates: V = v_k + v_c − v_e, and no less than v_k or v_c alone.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.custom_geometry import similarity_matrix
from equimetric.evaluation.engine.scan import scan
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.tiles import Tile
from equimetric.ops.blocks import slices
from equimetric.ops.masks import flatnonzero

__all__ = ["AcceptedShares", "TwoWayRates", "accepted_shares"]

BLOCK_PAIRS = 2**20
"""Pairs compared with the threshold at a time, in float64."""


@dataclass(frozen=True)
class TwoWayRates:
    """Means and variances of the tables of all classes, each (C,); NaN where a class has none.

    images, others  n, the images of the class, and C, the other classes they are compared with
    negatives       pairs of these
    far             mean of a_kc
    image_variance, class_variance, rest_variance   v_k, v_c and v_e
    frr             mean over the images of the class of the share of its other images that they reject
    frr_variance    of that mean, by deleting one image at a time: both ends of its pairs
    """

    images: Integers
    others: Integers
    negatives: Integers
    far: Floats
    image_variance: Floats
    class_variance: Floats
    rest_variance: Floats
    frr: Floats
    frr_variance: Floats


class AcceptedShares(Collector):
    """Sums over the tables of all classes at one threshold; never more than one class's C columns at a time."""

    def __init__(self, sets: LabelledSets, threshold: float) -> None:
        super().__init__(sets, {}, ())
        self.threshold, classes = threshold, len(sets.class_labels)
        self.sizes = torch.bincount(sets.gallery_classes, minlength=classes).cpu().numpy()
        self.row_means = np.zeros(len(sets.queries))
        self.accepted_own = np.zeros(len(sets.queries))
        self.squares = np.zeros(classes)
        self.column_squares = np.zeros(classes)
        self._class, self._column_sums = -1, np.zeros(classes)

    def collect(self, tile: Tile) -> None:
        """Count what each row accepts of each class; the rows of one class are adjacent, across tiles too."""
        classes = self.sets.query_classes[tile.rows].cpu().numpy()
        for block in slices(len(tile.rows), max(1, BLOCK_PAIRS // tile.similarity.shape[1])):
            self._add(tile.rows[block].cpu().numpy(), classes[block], self._count(tile.select_rows(block)))

    def _count(self, tile: Tile) -> Floats:
        """Accepted items of every class, (B, C)."""
        classes, width = len(self.sizes), tile.similarity.shape[1]
        # As single pairs are measured: the threshold may be the distance of one of them.
        accepted = flatnonzero(tile.matrix.distance(tile.similarity.double(), tile.rows) < self.threshold)
        row, item = accepted // width, accepted % width
        counts: Tensor = torch.bincount(
            row * classes + self.sets.gallery_classes[item], minlength=len(tile.rows) * classes
        )
        return counts.view(len(tile.rows), classes).double().cpu().numpy()

    def _add(self, rows: Integers, classes: Integers, counts: Floats) -> None:
        index = np.arange(len(rows))
        self.accepted_own[rows] = counts[index, classes]
        shares = counts / np.maximum(self.sizes, 1)
        shares[index, classes] = 0.0
        self.row_means[rows] = shares.sum(axis=1) / np.maximum(self._others(classes), 1)
        starts = np.flatnonzero(np.append(True, classes[1:] != classes[:-1]))
        for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
            if classes[start] != self._class:
                self._finish_class()
                self._class = int(classes[start])
            self._column_sums += shares[start:stop].sum(axis=0)
            self.squares[self._class] += np.square(shares[start:stop]).sum()

    def _others(self, classes: Integers) -> Integers:
        """Number of classes with items other than each of these."""
        return np.asarray((self.sizes > 0).sum() - (self.sizes[classes] > 0), np.int64)

    def _finish_class(self) -> None:
        if self._class >= 0:
            self.column_squares[self._class] = np.square(self._column_sums).sum()
        self._column_sums[:] = 0.0

    def finish(self) -> None:
        """Close the last class."""
        self._finish_class()

    def rates(self) -> TwoWayRates:
        """Means and variances of every class."""
        classes = self.sets.query_classes.cpu().numpy()
        class_index = np.arange(len(self.sizes))

        def total(values: Floats) -> Floats:
            return np.bincount(classes, values, len(class_index)).astype(np.float64)

        n, others = np.bincount(classes, minlength=len(class_index)), self._others(class_index)
        with np.errstate(divide="ignore", invalid="ignore"):
            far = total(self.row_means) / np.where(others > 0, n, 0)
            rows = total(np.square(self.row_means - far[classes]))
            columns = np.maximum(self.column_squares / n**2 - others * far**2, 0.0)
            rest = self.squares - n * others * far**2 - others * rows - n * columns
            pairs = self.sets.num_relevant.double().cpu().numpy()
            rejected = pairs - self.accepted_own
            frr = total(rejected) / total(pairs)
            # Without image k: (R − 2 R_k) / (P − 2 P_k), in ordered pairs.
            deleted = (total(rejected)[classes] - 2 * rejected) / (total(pairs)[classes] - 2 * pairs)
            mean = total(deleted) / n
            return TwoWayRates(
                images=n,
                others=others,
                negatives=n * (self.sizes.sum() - self.sizes),
                far=far,
                image_variance=rows / (n - 1) / n,
                class_variance=columns / (others - 1) / others,
                rest_variance=np.maximum(rest, 0.0) / ((n - 1) * (others - 1) * n * others),
                frr=frr,
                frr_variance=(n - 1) / n * total(np.square(deleted - mean[classes])),
            )


def accepted_shares(
    sets: LabelledSets, threshold: float, *, block_rows: int | None = None, progress: bool = False
) -> TwoWayRates:
    """What the classes accept at a threshold, pairs at a smaller distance, by a scan of its own."""
    collector = AcceptedShares(sets, threshold)
    scan(similarity_matrix(sets), [collector], block_rows=block_rows, progress=progress)
    return collector.rates()
