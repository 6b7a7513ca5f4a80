"""Samples with several labels each: a pair is positive if it shares a label, and a class is a label.

Labels are a multi-hot matrix of 0 and 1, one column per label, or a Python set of labels for every sample. Samples with
the same labels form one group, whose number takes the place of a class number where pairs are kept. The labels that
queries and gallery items share are counted by a product of their multi-hot rows, a few at a time: it costs as much as C
more dimensions of the embeddings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.sets import LabelledSets, Overlap
from equimetric.ops.blocks import slices

__all__ = [
    "LabelMatrices",
    "MultiLabelSets",
    "has_label_sets",
    "match_label_sets",
    "refuse_label_lists",
    "require_one_class",
]

ENTRY_CHUNK_SIZE = 2**20
"""Entries of multi-hot rows, or of pairs, in one temporary: they should stay in the cache."""
FEW_COLUMNS = 16
"""Where fewer than one in this many gallery items are needed, single pairs are faster than a product with all."""


@dataclass(frozen=True)
class LabelMatrices:
    """Multi-hot labels (N, C) and (G, C) bool, the labels of the columns, and the group of each row, (N,) and (G,)."""

    queries: Tensor
    gallery: Tensor
    class_labels: tuple[int, ...] | tuple[str, ...]

    def groups(self) -> tuple[Tensor, Tensor]:
        """Rows with the same labels have the same number."""
        packed = np.packbits(torch.cat([self.queries, self.gallery]).numpy(), axis=1)
        _, inverse = np.unique(packed, axis=0, return_inverse=True)
        group_ids = torch.from_numpy(inverse.reshape(-1))
        return group_ids[: len(self.queries)], group_ids[len(self.queries) :]


@dataclass(frozen=True)
class MultiLabelSets(LabelledSets):
    """Queries and gallery with several labels, or none, for each sample; a sample without labels matches nothing.

    query_labels (N, C), gallery_labels (G, C): multi-hot, bool
    query_classes, gallery_classes: numbers of the groups of samples with the same labels
    labels: `query_labels` on the CPU
    """

    query_labels: Tensor = field(kw_only=True)
    gallery_labels: Tensor = field(kw_only=True)

    @property
    def memberships(self) -> tuple[Tensor, Tensor]:
        """Every query with each of its labels, (M,) query indices and class numbers."""
        query, label = self.query_labels.nonzero(as_tuple=True)
        return query, label

    @cached_property
    def num_relevant(self) -> Tensor:
        """R, the number of gallery items that share a label with a query and are compared with it, (N,)."""
        num_relevant = torch.empty_like(self.query_classes)
        rows = torch.arange(len(num_relevant), device=num_relevant.device)
        for block in slices(len(rows), max(1, ENTRY_CHUNK_SIZE // len(self.gallery_classes))):
            shared = self.shares_label(rows[block])
            if self.parents is not None:
                shared &= self.parents[0][block, None] == self.parents[1]
            num_relevant[block] = shared.sum(dim=1)
        if self.gallery is None:
            num_relevant -= self.query_labels.any(dim=1).long()
        if self.excluded is not None:
            query, item = self.excluded.unbind(1)
            positive = (self.query_labels[query] & self.gallery_labels[item]).any(dim=1)
            if self.parents is not None:
                positive &= self.parents[0][query] == self.parents[1][item]
            num_relevant -= torch.bincount(query[positive], minlength=len(num_relevant))
        return num_relevant

    def shares_label(self, rows: Tensor, columns: slice = slice(None)) -> Tensor:
        """Whether gallery items share a label with queries, (Q, G) or a range of columns; excluded ones too."""
        return self._count_shared(rows, columns) > 0

    def is_relevant(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Whether gallery items (Q, k) share a label with their query (Q,); False for an index below 0."""
        return self._count_shared_at(rows, columns) > 0

    def grades(self, rows: Tensor, columns: Tensor, overlap: Overlap) -> Tensor:
        """Relevance of gallery items (Q, k) to their query: 1 for a shared label, or |A ∩ B| / |A ∪ B|; float64."""
        shared = self._count_shared_at(rows, columns)
        if overlap == "shared":
            return (shared > 0).double()
        return _jaccard(shared, self._sizes[0][rows, None], self._sizes[1][columns])

    def all_grades(self, rows: Tensor, overlap: Overlap) -> Tensor:
        """The same for the whole gallery, (Q, G)."""
        shared = self._count_shared(rows)
        if overlap == "shared":
            return (shared > 0).double()
        return _jaccard(shared, self._sizes[0][rows, None], self._sizes[1])

    def relevant_columns(self, rows: Tensor, columns: slice = slice(None)) -> Tensor:
        """The gallery items that share a label with each query, excluded ones too, (Q, most), padded with −1."""
        shared = self.shares_label(rows, columns)
        row, column = shared.nonzero(as_tuple=True)
        column = column + (columns.start or 0)
        counts = shared.sum(dim=1)
        items = torch.full((len(rows), max(1, int(counts.max()))), -1, dtype=torch.int64, device=rows.device)
        items[row, torch.arange(len(row), device=rows.device) - (counts.cumsum(0) - counts)[row]] = column
        return items

    @cached_property
    def order_by_class(self) -> Tensor:
        """The queries by their number of relevant items, then by group, (N,): similar rows make fast tiles."""
        order = self.query_classes.argsort(stable=True)
        return order[self.num_relevant[order].argsort(stable=True)]

    @cached_property
    def group_labels(self) -> Tensor:
        """The labels of every group, (groups, C) bool."""
        groups = 1 + int(torch.maximum(self.query_classes.max(), self.gallery_classes.max()))
        labels = self.query_labels.new_zeros(groups, self.query_labels.shape[1])
        labels[self.query_classes] = self.query_labels
        labels[self.gallery_classes] = self.gallery_labels
        return labels

    @cached_property
    def _sizes(self) -> tuple[Tensor, Tensor]:
        """Number of labels of queries (N,) and gallery items (G,)."""
        return self.query_labels.sum(dim=1), self.gallery_labels.sum(dim=1)

    def _count_shared(self, rows: Tensor, columns: slice = slice(None)) -> Tensor:
        """Labels that queries and gallery items have in common, (Q, K); float32 holds these counts exactly."""
        queries, items = self.query_labels[rows].float(), self.gallery_labels[columns]
        counts = queries.new_empty(len(queries), len(items))
        for block in slices(len(items), max(1, ENTRY_CHUNK_SIZE // items.shape[1])):
            torch.mm(queries, items[block].float().T, out=counts[:, block])
        return counts

    def _count_shared_at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The same for single items (Q, k) of each query; 0 for an index below 0."""
        counts = torch.empty(columns.shape, device=columns.device)
        few = FEW_COLUMNS * columns.shape[1] <= len(self.gallery_labels)
        row_entries = columns.shape[1] * self.query_labels.shape[1] if few else len(self.gallery_labels)
        for block in slices(len(rows), max(1, ENTRY_CHUNK_SIZE // max(1, row_entries))):
            if few:
                shared = self.query_labels[rows[block], None] & self.gallery_labels[columns[block]]
                counts[block] = shared.sum(dim=2).float()
            else:
                counts[block] = self._count_shared(rows[block]).gather(1, columns[block].clamp(min=0))
        return counts.masked_fill_(columns < 0, 0)


def require_one_class(sets: LabelledSets, purpose: str) -> None:
    """Raise an error where samples have several labels."""
    if isinstance(sets, MultiLabelSets):
        raise EquimetricError(f"{purpose} needs one class for every sample; multi-hot labels have none")


def has_label_sets(labels: Any) -> bool:
    """Whether labels are a multi-hot matrix of 0 and 1 with several columns, or Python sets."""
    if _are_python_sets(labels):
        return True
    try:
        matrix = labels if isinstance(labels, Tensor) else np.asarray(labels)
    except ValueError:
        return False
    if matrix.ndim != 2 or matrix.shape[1] < 2 or (isinstance(matrix, np.ndarray) and matrix.dtype.kind not in "biuf"):
        return False
    return bool(((matrix == 0) | (matrix == 1)).all())


def refuse_label_lists(labels: Any, count: int) -> None:
    """Raise an error for lists of labels: one of 0 and 1 could be meant as either."""
    try:
        shape = np.shape(labels)
    except ValueError:
        shape = (count, 2)
    if len(shape) == 2 and shape[0] == count and shape[1] > 1:
        raise EquimetricError(
            "labels give a list to each sample; give one label, a multi-hot row of 0 and 1, or a Python set of labels"
        )


def match_label_sets(labels: Any, gallery_labels: Any, queries: int, gallery: int | None) -> LabelMatrices:
    """The labels of queries and gallery as multi-hot matrices with the same columns."""
    parts = [("labels", labels, queries)]
    if gallery is not None:
        parts.append(("gallery_labels", gallery_labels, gallery))
    for name, values, count in parts:
        if not has_label_sets(values):
            raise EquimetricError(f"labels are multi-hot or sets, but {name} are not; give both alike")
        if len(values) != count:
            raise EquimetricError(
                f"there are {count} embeddings but {len(values)} rows of {name}; give the labels of each, or none"
            )
    as_sets = [_are_python_sets(values) for _, values, _ in parts]
    if len(set(as_sets)) > 1:
        raise EquimetricError("labels and gallery_labels must both be multi-hot or both be sets to be compared")
    if as_sets[0]:
        return _matrices_of_sets([list(values) for _, values, _ in parts])
    arrays = [values if isinstance(values, Tensor) else np.asarray(values) for _, values, _ in parts]
    matrices = [torch.as_tensor(array).cpu() for array in arrays]
    if matrices[0].shape[1] != matrices[-1].shape[1]:
        raise EquimetricError(
            f"labels have {matrices[0].shape[1]} columns and gallery_labels {matrices[-1].shape[1]}; a column is one "
            "label in both"
        )
    return LabelMatrices(matrices[0].bool(), matrices[-1].bool(), tuple(range(matrices[0].shape[1])))


def _are_python_sets(labels: Any) -> bool:
    objects = isinstance(labels, Sequence) or (isinstance(labels, np.ndarray) and labels.dtype.kind == "O")
    return objects and any(isinstance(entry, set | frozenset) for entry in labels)


def _matrices_of_sets(parts: list[list[Any]]) -> LabelMatrices:
    for entry in (entry for part in parts for entry in part):
        if not isinstance(entry, set | frozenset):
            raise EquimetricError(f"labels mix sets with other types such as {entry!r}; give a set for every sample")
    labels = {label for part in parts for entry in part for label in entry}
    if not (all(isinstance(label, str) for label in labels) or all(_is_integer(label) for label in labels)):
        raise EquimetricError("the labels in the sets must be all integers or all strings")
    names: list[Any] = sorted(label if isinstance(label, str) else int(label) for label in labels)
    if not names:
        raise EquimetricError("no sample has a label; there is nothing to evaluate")
    columns = {name: index for index, name in enumerate(names)}
    matrices = []
    for part in parts:
        matrix = torch.zeros(len(part), len(names), dtype=torch.bool)
        for row, entry in enumerate(part):
            matrix[row, [columns[label] for label in entry]] = True
        matrices.append(matrix)
    return LabelMatrices(matrices[0], matrices[-1], tuple(names))


def _is_integer(label: Any) -> bool:
    return isinstance(label, int | np.integer) and not isinstance(label, bool)


def _jaccard(shared: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """|A ∩ B| / |A ∪ B| in float64; 0 for two samples without labels."""
    either = first + second - shared.double()
    return shared.double() / either.clamp(min=1)
