"""Which classes the two ends of a pair have in common, where pairs are kept as the numbers of their ends.

With one class for each sample the number is its class. Samples with several labels are kept as the number of their
group, all samples with the same labels: a pair is positive if its groups share a label. It is a positive pair of every
label that both have; a negative pair is one of every label at either end.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.evaluation.engine.arrays import Integers
from equimetric.evaluation.engine.label_sets import MultiLabelSets
from equimetric.evaluation.engine.pair_counts import BLOCK_PAIRS, GroupCounts
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.ops.blocks import slices

__all__ = ["LabelSetPairClasses", "PairClasses"]

Numbers = NDArray[Any]
BLOCK_BYTES = 2**23
"""Labels of pairs read at a time."""


class PairClasses:
    """One class for each sample: the numbers of the ends are classes."""

    @staticmethod
    def from_sets(sets: LabelledSets) -> "PairClasses":
        """The pair classes of checked sets."""
        return LabelSetPairClasses(sets) if isinstance(sets, MultiLabelSets) else PairClasses()

    def positive(self, first: Numbers, second: Numbers) -> NDArray[np.bool_]:
        """Which of P pairs are positive."""
        same: NDArray[np.bool_] = first == second
        return same

    def count_positive(self, table: GroupCounts, first: Numbers, second: Numbers, threshold_index: Integers) -> None:  # noqa: ARG002
        """Count P positive pairs, each at the index of its threshold (P,), for all classes that both ends have."""
        table.add(first, threshold_index)

    def count_negative(self, table: GroupCounts, first: Numbers, second: Numbers, threshold_index: Integers) -> None:
        """Count P negative pairs for all classes at either end."""
        for end in (first, second):
            table.add(end, threshold_index)


class LabelSetPairClasses(PairClasses):
    """Several labels for each sample: the numbers of the ends are groups."""

    def __init__(self, sets: MultiLabelSets) -> None:
        labels = sets.group_labels.cpu().numpy()
        self.packed = np.packbits(labels, axis=1)
        _, self.labels = labels.nonzero()
        self.sizes = labels.sum(axis=1)
        self.starts = self.sizes.cumsum() - self.sizes

    def positive(self, first: Numbers, second: Numbers) -> NDArray[np.bool_]:
        """Whether a label is shared."""
        shared = np.empty(len(first), bool)
        for block in slices(len(first), max(1, BLOCK_BYTES // self.packed.shape[1])):
            shared[block] = (self.packed[first[block]] & self.packed[second[block]]).any(axis=1)
        return shared

    def count_positive(self, table: GroupCounts, first: Numbers, second: Numbers, threshold_index: Integers) -> None:
        """Count each pair for every label that both ends have."""
        for block in slices(len(first), BLOCK_PAIRS):
            pair, labels = self._labels_of(first[block])
            shared = (self.packed[second[block][pair], labels // 8] >> (7 - labels % 8) & 1).astype(bool)
            table.add(labels[shared], threshold_index[block][pair[shared]])

    def count_negative(self, table: GroupCounts, first: Numbers, second: Numbers, threshold_index: Integers) -> None:
        """Count each pair for every label at either end: they have none in common."""
        for block in slices(len(first), BLOCK_PAIRS):
            for end in (first, second):
                pair, labels = self._labels_of(end[block])
                table.add(labels, threshold_index[block][pair])

    def _labels_of(self, groups: Numbers) -> tuple[Integers, Numbers]:
        """The labels of P groups, one after another, each with the index of its group among the P."""
        sizes = self.sizes[groups]
        pair = np.repeat(np.arange(len(groups)), sizes)
        within = np.arange(len(pair)) - np.repeat(sizes.cumsum() - sizes, sizes)
        return pair, self.labels[self.starts[groups][pair] + within]
