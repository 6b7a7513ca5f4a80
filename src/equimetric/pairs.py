"""The core types: queries compared with references, and the triples chosen among them.

Every loss is a function of these types. It does not know where the references come from (the batch, a memory, other
processes, learned proxies) nor how the embeddings are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, not_a_tensor

if TYPE_CHECKING:
    from equimetric.geometry import Geometry

__all__ = ["Pairs", "Queries", "Selected", "TripletBand", "Triplets", "round_ties"]

DECIMALS = 12
"""Rounding of float64 similarities for comparison: a matrix product leaves equal ones apart in the last bits."""


def round_ties(values: Tensor) -> Tensor:
    """Values without gradient by which samples are compared, such that exact duplicates tie.

    Only float64 is rounded: in float32 it would make different samples equal.
    """
    values = values.detach()
    return values.round(decimals=DECIMALS) if values.dtype == torch.float64 else values


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries themselves, for losses that read embeddings or keep a parameter per class or per image."""

    embeddings: Tensor
    """(Q, D) as the geometry compared them: of unit length where the geometry normalises."""
    labels: Tensor | None = None
    """(Q,) class ids."""
    index: Tensor | None = None
    """(Q,) positions in the training set."""
    target_length: Tensor | float | None = None
    """(Q,) or one for all: length of the one vector that represents the query's class, where there is one."""
    references: Tensor | None = None
    """(R, D) an explicit reference set, as the geometry compared it."""
    weight: Tensor | None = None
    """(Q,) the multiplicity of each query: 0 is as if absent, 2 as if present twice; None is 1."""

    def rows(self, rows: slice) -> Queries:
        """Select some of the queries."""
        labels, index, length = self.labels, self.index, self.target_length
        return Queries(
            self.embeddings[rows],
            None if labels is None else labels[rows],
            None if index is None else index[rows],
            length[rows] if isinstance(length, Tensor) else length,
            self.references,
            None if self.weight is None else self.weight[rows],
        )


class Pairs:
    """A set of Q queries compared with a set of R references.

    Attributes:
        similarity: (Q, R), larger = closer, always; float32 or float64 even under autocast.
        positive: (Q, R) bool, same label and not the same sample.
        negative: (Q, R) bool, different label.
        weight: (Q, R) or None, the multiplicity of a pair: 0 is as if absent, 2 as if present twice; None is 1.
        geometry: how the similarity was measured, for losses that need the distance behind it.
        queries: the queries themselves, where known.
        target: (Q,) or None, the column of each query's one positive, where all other columns are its negatives.

    """

    __slots__ = ("geometry", "negative", "positive", "queries", "similarity", "target", "weight")

    def __init__(
        self,
        similarity: Tensor,
        positive: Tensor,
        negative: Tensor,
        weight: Tensor | None = None,
        *,
        geometry: Geometry | None = None,
        queries: Queries | None = None,
        target: Tensor | None = None,
    ) -> None:
        if weight is not None:
            present = weight > 0
            positive, negative = positive & present, negative & present
        if queries is not None and queries.weight is not None:
            query_present = (queries.weight > 0)[:, None]
            positive, negative = positive & query_present, negative & query_present
        self.similarity = similarity
        self.positive = positive
        self.negative = negative
        self.weight = weight
        self.geometry = geometry
        self.queries = queries
        self.target = target

    @property
    def mask(self) -> Tensor:
        """(Q, R) bool: every pair."""
        return self.positive | self.negative

    def distance(self) -> Tensor:
        """(Q, R) the distance of this geometry; for cosine the Euclidean distance √(2 − 2s) of the unit vectors."""
        if self.geometry is None:
            return -self.similarity
        return self.geometry.distance(self.similarity)

    def default_margin(self) -> float:
        """The margin of a triple by default: how much farther the negative must be than the positive."""
        return 0.05 if self.geometry is None else self.geometry.default_margin

    def known_empty(self) -> bool:
        """Whether there is no pair at all, as after a strict selection; False where finding out takes long."""
        if not self.similarity.is_cpu or torch.compiler.is_compiling():
            return False
        # As bytes, which torch reduces ten times faster than booleans.
        masks = (self.negative.view(torch.uint8), self.positive.view(torch.uint8))
        return not self.similarity.numel() or not any(bool(mask.amax(1).any()) for mask in masks)

    def multiplicity(self, mask: Tensor) -> Tensor:
        """(Q, R) how often each pair of a mask is present, 0 outside the mask."""
        present = mask.view(torch.uint8).to(self.similarity.dtype)
        return present if self.weight is None else present * self.weight

    def self_mask(self) -> Tensor:
        """(Q, R) bool: the column that is the query itself; an empty row where the query is not among the references.

        It is the only column that is present and yet neither positive nor negative.
        """
        neither = ~self.mask
        if self.weight is not None:
            neither = neither & (self.weight > 0)
        return neither & (neither.sum(1, keepdim=True) == 1)

    def self_similarity(self) -> Tensor:
        """(Q,) x·x, which is 1 for unit vectors and for unknown queries."""
        if self.queries is None:
            return self.similarity.new_ones(len(self.similarity))
        squares: Tensor = torch.linalg.vecdot(self.queries.embeddings, self.queries.embeddings)
        return squares.to(self.similarity)

    def add_query(self, similarity: Tensor, *, positive: bool) -> Pairs:
        """The pairs with one more reference, the first column: the query itself, at the (Q,) similarity given.

        It counts as a positive or, with positive=False, as neither positive nor negative.
        """
        column = similarity[:, None]
        is_positive = torch.full_like(column, positive, dtype=torch.bool)
        is_negative = torch.zeros_like(is_positive)
        return self.replace(
            similarity=torch.cat([column, self.similarity], 1),
            positive=torch.cat([is_positive, self.positive], 1),
            negative=torch.cat([is_negative, self.negative], 1),
            weight=None if self.weight is None else torch.cat([torch.ones_like(column), self.weight], 1),
        )

    @property
    def query_weight(self) -> Tensor | None:
        """(Q,) the multiplicity of each query; None where all count once."""
        return None if self.queries is None else self.queries.weight

    def apply_query_weight(self) -> Pairs:
        """The pairs with the multiplicity of their query as part of their own."""
        weight = self.query_weight
        return self if weight is None else self.weighted(weight[:, None].expand_as(self.similarity))

    def keep(self, *, positive: Tensor, negative: Tensor) -> Pairs:
        """The same pairs with narrower masks."""
        return self.replace(positive=self.positive & positive, negative=self.negative & negative)

    def weighted(self, weight: Tensor) -> Pairs:
        """The same pairs, each counted `weight` times as often as before."""
        return self.replace(weight=weight if self.weight is None else self.weight * weight)

    def rows(self, rows: slice, similarity: Tensor) -> Pairs:
        """Select some of the queries against all references, with the given similarity."""
        return Pairs(
            similarity,
            self.positive[rows],
            self.negative[rows],
            None if self.weight is None else self.weight[rows],
            geometry=self.geometry,
            queries=None if self.queries is None else self.queries.rows(rows),
            target=None if self.target is None else self.target[rows],
        )

    def replace(
        self,
        *,
        similarity: Tensor | None = None,
        positive: Tensor | None = None,
        negative: Tensor | None = None,
        weight: Tensor | None = None,
        queries: Queries | None = None,
    ) -> Pairs:
        """A copy with some parts replaced."""
        same_relation = positive is None and negative is None and weight is None
        return Pairs(
            self.similarity if similarity is None else similarity,
            self.positive if positive is None else positive,
            self.negative if negative is None else negative,
            self.weight if weight is None else weight,
            geometry=self.geometry,
            queries=self.queries if queries is None else queries,
            target=self.target if same_relation else None,
        )

    def __repr__(self) -> str:
        return (
            f"Pairs({tuple(self.similarity.shape)}, {int(self.positive.sum())} positive, "
            f"{int(self.negative.sum())} negative, geometry={self.geometry.name if self.geometry else None})"
        )


class Triplets:
    """T index triples (anchor, positive, negative) into the pairs they were chosen from.

    Attributes:
        pairs: the pairs that the indices point into.
        anchor, positive, negative: (T,) int64; anchors are rows, positives and negatives columns.
        weight: (T,) or None, the multiplicity of a triple.

    """

    __slots__ = ("anchor", "negative", "pairs", "positive", "weight")

    def __init__(
        self, pairs: Pairs, anchor: Tensor, positive: Tensor, negative: Tensor, weight: Tensor | None = None
    ) -> None:
        if not anchor.shape == positive.shape == negative.shape:
            raise EquimetricError(
                "triplets need as many anchors as positives and negatives, got "
                f"{anchor.numel()}, {positive.numel()} and {negative.numel()}"
            )
        self.pairs = pairs
        self.anchor = anchor
        self.positive = positive
        self.negative = negative
        self.weight = weight

    @classmethod
    def from_indices(cls, pairs: Pairs, anchor: Tensor, positive: Tensor, negative: Tensor) -> Triplets:
        """Triples whose multiplicity follows from that of their two pairs."""
        weight = None if pairs.weight is None else pairs.weight[anchor, positive] * pairs.weight[anchor, negative]
        return cls(pairs, anchor, positive, negative, weight)

    @classmethod
    def from_rows(cls, pairs: Pairs, triplets: Tensor) -> Triplets:
        """Triples given as (T, 3) rows of anchor, positive and negative; the masks must agree."""
        if not isinstance(triplets, Tensor):
            raise not_a_tensor(triplets, "triplets")
        if triplets.ndim != 2 or triplets.shape[1] != 3 or triplets.is_floating_point() or triplets.dtype == torch.bool:
            raise EquimetricError(
                f"triplets must be whole numbers of shape (triples, 3), got {triplets.dtype} {tuple(triplets.shape)}"
            )
        anchor, positive, negative = triplets.to(pairs.similarity.device, torch.int64).unbind(1)
        rows, columns = pairs.similarity.shape
        last = torch.tensor([rows, columns, columns], device=triplets.device) - 1
        invalid = ((triplets < 0) | (triplets > last)).any(1)
        if not invalid.any():
            invalid = ~(pairs.positive[anchor, positive] & pairs.negative[anchor, negative])
        if invalid.any():
            raise EquimetricError(
                f"triple {triplets[int(invalid.nonzero()[0])].tolist()} is not an anchor, a positive and a negative "
                f"of these {rows} queries and {columns} references"
            )
        return cls.from_indices(pairs, anchor, positive, negative)

    def violation(self) -> Tensor:
        """(T,) s_an − s_ap: above zero where the negative is closer than the positive."""
        similarity = self.pairs.similarity
        return similarity[self.anchor, self.negative] - similarity[self.anchor, self.positive]

    def swapped_violation(self) -> Tensor:
        """(T,) max(s_an, s_pn) − s_ap, of a batch compared with itself: the negative seen from the nearer of both."""
        similarity = self.pairs.similarity
        nearer = torch.maximum(similarity[self.anchor, self.negative], similarity[self.positive, self.negative])
        return nearer - similarity[self.anchor, self.positive]

    def as_pairs(self) -> Pairs:
        """The pairs that occur in the triples, weighted by how often they do."""
        count = torch.zeros_like(self.pairs.similarity)
        weight = torch.ones_like(self.anchor, dtype=count.dtype) if self.weight is None else self.weight
        count = count.index_put((self.anchor, self.positive), weight, accumulate=True)
        count = count.index_put((self.anchor, self.negative), weight, accumulate=True)
        return self.pairs.replace(weight=count)

    def __len__(self) -> int:
        return self.anchor.numel()


class TripletBand:
    """All triples whose violation v = s_an − s_ap lies between two bounds, never listed one by one.

    There are O(Q·R²) such triples, but for one anchor and positive they are a contiguous stretch of that anchor's
    negatives in order of similarity, so sums and counts over them come from one sort and prefix sums.
    """

    __slots__ = ("above", "at_least", "below", "pairs")

    def __init__(self, pairs: Pairs, *, above: float = -inf, at_least: float = -inf, below: float = inf) -> None:
        self.pairs = pairs
        self.above = above
        self.at_least = at_least
        self.below = below

    @property
    def is_unbounded(self) -> bool:
        """Whether the band has no bounds."""
        return self.above == self.at_least == -inf and self.below == inf

    def indicator(self, violation: Tensor) -> Tensor:
        """1 where a violation lies inside the band, else 0, of the same dtype; −∞ lies in none. Without gradient."""
        violation = round_ties(violation)
        # Without a lower bound, −∞ is still outside.
        bounds = [(torch.gt, self.above), (torch.ge, self.at_least), (torch.lt, self.below)]
        finite = [(compare, bound) for compare, bound in bounds if abs(bound) < inf]
        if self.above == self.at_least == -inf:
            finite.append((torch.gt, -inf))
        inside, *masks = (compare(violation, bound, out=torch.empty_like(violation)) for compare, bound in finite)
        for mask in masks:
            inside *= mask
        return inside

    def triplets(self) -> Triplets:
        """The triples as an explicit list, in order of anchor, positive, negative."""
        pairs = self.pairs
        anchor, positive = pairs.positive.nonzero(as_tuple=True)
        mask = pairs.negative[anchor]
        # NaN lies in no band, but without bounds there is none.
        if not self.is_unbounded:
            violation = pairs.similarity[anchor] - pairs.similarity[anchor, positive, None]
            mask &= self.indicator(violation).bool()
        row, negative = mask.nonzero(as_tuple=True)
        return Triplets.from_indices(pairs, anchor[row], positive[row], negative)

    def as_pairs(self) -> Pairs:
        """The pairs that occur in the band, weighted by how often they do."""
        if not self.is_unbounded:
            return self.triplets().as_pairs()
        pairs = self.pairs
        weight = torch.ones_like(pairs.similarity) if pairs.weight is None else pairs.weight
        positives = (pairs.positive * weight).sum(1, keepdim=True)
        negatives = (pairs.negative * weight).sum(1, keepdim=True)
        return pairs.replace(weight=weight * torch.where(pairs.positive, negatives, positives))


Selected = Pairs | Triplets | TripletBand
"""The result of a selection: narrower pairs, listed triples, or a band of triples."""
