"""The checked queries and gallery that everything else reads, with their classes."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.mapped_vectors import Vectors
from equimetric.geometry import Geometry

if TYPE_CHECKING:
    from equimetric.evaluation.cohort import Cohort

__all__ = ["GeometryName", "LabelledSets", "Overlap"]

GeometryName = Literal["cosine", "euclidean", "dot", "hamming"]
Overlap = Literal["shared", "jaccard"]
"""The relevance of an item that shares labels with a query: 1, or the share of their labels that both have."""


@dataclass(frozen=True)
class LabelledSets:
    """Queries and the gallery they are searched in; None for the queries themselves, each without itself.

    queries (N, D), gallery (G, D) or None: unit vectors for cosine, ±1 for Hamming
    query_classes (N,), gallery_classes (G,): index of the label in `class_labels`
    labels: those of the queries as given
    excluded (P, 2): pairs (query, gallery item) of the same image, which are not compared
    custom_geometry: what measures similarities, where that is no inner product
    parents (N,), (G,): superclasses of queries and gallery items, of which only equal ones are compared
    items (N, D): the queries as gallery items, where one set has vectors of two forms: see `Cohort`
    title: what a result calls the geometry, where that is not its name
    cohort: what has extended the vectors
    """

    queries: Vectors
    gallery: Vectors | None
    query_classes: Tensor
    gallery_classes: Tensor
    labels: Tensor | tuple[str, ...]
    class_labels: tuple[int, ...] | tuple[str, ...]
    geometry: str = "cosine"
    excluded: Tensor | None = None
    custom_geometry: Geometry | None = None
    parents: tuple[Tensor, Tensor] | None = None
    items: Vectors | None = None
    title: str | None = None
    cohort: "Cohort | None" = None

    @property
    def gallery_vectors(self) -> Vectors:
        """The gallery, or the queries where they are their own, (G, D)."""
        if self.gallery is not None:
            return self.gallery
        return self.queries if self.items is None else self.items

    @property
    def compared_by(self) -> str:
        """How vectors are compared, in words: 'cosine', 'cosine, cohort within parents'."""
        return (self.title or self.geometry) + ("" if self.parents is None else " within parents")

    @property
    def candidates(self) -> int:
        """The largest number of gallery items a query is compared with."""
        return len(self.gallery_classes) - (self.gallery is None)

    @cached_property
    def num_relevant(self) -> Tensor:
        """R, the number of gallery items of its own class a query is compared with, (N,)."""
        sizes = torch.bincount(self.gallery_classes, minlength=len(self.class_labels))
        num_relevant = sizes[self.query_classes] - int(self.gallery is None)
        if self.excluded is not None:
            query, item = self.excluded.unbind(1)
            same_class = self.query_classes[query] == self.gallery_classes[item]
            num_relevant -= torch.bincount(query[same_class], minlength=len(self.queries))
        return num_relevant

    @property
    def memberships(self) -> tuple[Tensor, Tensor]:
        """Every query with its class, (N,) query indices and class numbers."""
        return torch.arange(len(self.query_classes), device=self.query_classes.device), self.query_classes

    def shares_label(self, rows: Tensor, columns: slice = slice(None)) -> Tensor:
        """Whether gallery items are of the class of queries, (Q, G) or a range of columns; excluded ones too."""
        return self.query_classes[rows, None] == self.gallery_classes[columns]

    def is_relevant(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Whether gallery items (Q, k) are of the class of their query (Q,); False for an index below 0."""
        return (self.gallery_classes[columns] == self.query_classes[rows, None]) & (columns >= 0)

    def grades(self, rows: Tensor, columns: Tensor, overlap: Overlap) -> Tensor:  # noqa: ARG002
        """Relevance of gallery items (Q, k) to their query, float64: 1 in its class, however labels overlap."""
        return self.is_relevant(rows, columns).double()

    def all_grades(self, rows: Tensor, overlap: Overlap) -> Tensor:  # noqa: ARG002
        """The same for the whole gallery, (Q, G)."""
        return self.shares_label(rows).double()

    def relevant_columns(self, rows: Tensor, columns: slice = slice(None)) -> Tensor:
        """The gallery items of each query's class, excluded ones too, (Q, most of a query), padded with −1.

        They ascend; `columns` is the range of the gallery to find them in.
        """
        members, offsets = self._members
        classes, items = self.query_classes[rows], len(self.gallery_classes)
        first, end = offsets[classes], offsets[classes + 1]
        if columns.indices(items) != (0, items, 1):
            first, end = (
                torch.searchsorted(self._member_keys, classes * items + index)
                for index in (columns.start, columns.stop)
            )
        indices = first[:, None] + torch.arange(max(1, int((end - first).max())), device=rows.device)
        return torch.where(indices < end[:, None], members[indices.clamp(max=len(members) - 1)], -1)

    def select(self, rows: Tensor) -> "LabelledSets":
        """Some rows of one set compared with each other, by index or mask; what a cohort has made of them stays."""
        if self.gallery is not None:
            raise EquimetricError("rows are selected from one set; queries with a gallery of their own have two")
        index = torch.full((len(self.queries),), -1, dtype=torch.int64, device=self.queries.device)
        rows = torch.arange(len(index), device=index.device)[rows]
        index[rows] = torch.arange(len(rows), device=index.device)
        present, classes = torch.unique(self.query_classes[rows], return_inverse=True)
        excluded = None if self.excluded is None else index[self.excluded]
        selected = replace(
            self,
            queries=self.queries[rows],
            query_classes=classes,
            gallery_classes=classes,
            labels=tuple(self.labels[row] for row in rows.tolist())
            if isinstance(self.labels, tuple)
            else self.labels[rows.cpu()],
            class_labels=tuple(self.class_labels[class_index] for class_index in present.tolist()),
            excluded=None if excluded is None else excluded[(excluded >= 0).all(dim=1)],
            parents=None if self.parents is None else (self.parents[0][rows], self.parents[1][rows]),
            items=None if self.items is None else self.items[rows],
        )
        selected.require_pairs()
        return selected

    def require_pairs(self, *, one_class: bool = False) -> None:
        """Raise an error where no query has an item of its class, or all labels are one class, unless they may be."""
        if len(self.class_labels) == 1 and not one_class:
            raise EquimetricError(
                f"all labels are the same class ({self.class_labels[0]}); embeddings can only be evaluated with "
                "at least two classes"
            )
        if not self.num_relevant.any():
            raise EquimetricError("no query has a gallery item of its class, so there is nothing to evaluate")

    @cached_property
    def order_by_class(self) -> Tensor:
        """The queries class by class, classes with few relevant items first, (N,): similar rows make fast tiles."""
        num_relevant = torch.zeros(len(self.class_labels), dtype=torch.int64, device=self.queries.device)
        num_relevant = num_relevant.scatter_reduce(0, self.query_classes, self.num_relevant, "amax")
        index = torch.empty_like(num_relevant)
        index[num_relevant.argsort(stable=True)] = torch.arange(len(index), device=index.device)
        return index[self.query_classes].argsort(stable=True)

    @cached_property
    def _members(self) -> tuple[Tensor, Tensor]:
        """Gallery items class by class; class c spans offsets[c] … offsets[c + 1]."""
        sizes = torch.bincount(self.gallery_classes, minlength=len(self.class_labels))
        return self.gallery_classes.argsort(stable=True), torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])

    @cached_property
    def _member_keys(self) -> Tensor:
        """(G,) class · G + item of the gallery items class by class, ascending."""
        members, _ = self._members
        return self.gallery_classes[members] * len(members) + members
