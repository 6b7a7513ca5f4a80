"""Sums over quadruples: a positive pair against pairs of two other classes, by sorting."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from equimetric.ops.masks import columns_of, to_dtype
from equimetric.ops.ratios import ratio
from equimetric.ops.require import class_labels, is_square_batch
from equimetric.ops.triplets import multiplicity
from equimetric.pairs import Pairs

__all__ = ["quadruplet_mean"]


def quadruplet_mean(pairs: Pairs, margin: float) -> Tensor:
    """Mean of [s_kl − s_ap + margin]₊ over (a, p, k, l), the classes of a, k and l all different.

    A negative pair (k, l) meets all positive pairs but those of the classes of k and of l.
    """
    # Queries meet before the mean, so their multiplicity is one of pairs.
    pairs = pairs.apply_query_weight()
    labels, member = torch.unique(class_labels(pairs, "quadruplet"), return_inverse=True)
    columns, is_positive = columns_of(pairs.positive)
    positive = pairs.similarity.gather(1, columns)[is_positive].double() - margin
    counts = multiplicity(pairs, columns)[is_positive].double()
    positive_class = member[:, None].expand_as(columns)[is_positive]
    if not len(positive):
        return ratio(pairs.similarity.sum() * 0, pairs.similarity.new_zeros(()))

    thresholds = Thresholds(positive, counts, torch.zeros_like(positive_class), 1)
    by_class = Thresholds(positive, counts, positive_class, len(labels) + 1)
    class_of_column = member if is_square_batch(pairs) else reference_classes(pairs, member, len(labels))
    in_row, in_column = (count_negatives(pairs, dimension) for dimension in (1, 0))
    num_quadruplets = in_row.sum() * counts.sum()
    num_quadruplets = (
        num_quadruplets - in_row @ by_class.group_counts[member] - in_column @ by_class.group_counts[class_of_column]
    )

    # Only negatives above the lowest threshold add anything: few of them, once training is under way.
    row, column = (pairs.negative & (pairs.similarity.detach() > positive.detach().min())).nonzero(as_tuple=True)
    similarity = pairs.similarity[row, column].double()
    excess = thresholds.excess(similarity, torch.zeros_like(row))
    excess = excess - by_class.excess(similarity, member[row]) - by_class.excess(similarity, class_of_column[column])
    value = (excess if pairs.weight is None else excess * pairs.weight[row, column]).sum()
    return ratio(value.to(pairs.similarity.dtype), num_quadruplets.to(pairs.similarity.dtype))


def count_negatives(pairs: Pairs, dimension: int) -> Tensor:
    """Number of negatives in each row (dimension 1) or column (0), by multiplicity."""
    if pairs.weight is None:
        return pairs.negative.sum(dimension, dtype=torch.int32).double()
    return (pairs.negative * pairs.weight).sum(dimension, dtype=torch.float64)


def reference_classes(pairs: Pairs, member: Tensor, classes: int) -> Tensor:
    """(R,) the class index of every reference, `classes` for a class that no query has.

    Pairs know the labels of queries only: a reference has the class of the queries to which it is a positive, or
    else of those to which it is never a negative. This is exact where no selection has dropped pairs.
    """
    membership = one_hot(member, classes).T.to(pairs.similarity.dtype)
    as_positive = membership @ to_dtype(pairs.positive, membership.dtype)
    as_negative = membership @ to_dtype(pairs.negative, membership.dtype)
    has_query = ((as_positive > 0) | (as_negative == 0)).any(0)
    return torch.where(has_query, (as_positive * (len(member) + 1) - as_negative).argmax(0), classes)


class Thresholds:
    """(T,) thresholds in groups, sorted once, so that sums over those below a value are differences of prefix sums."""

    def __init__(self, threshold: Tensor, counts: Tensor, group: Tensor, groups: int) -> None:
        self.low, self.high = threshold.detach().min(), threshold.detach().max() + 1
        key = self.key(threshold.detach(), group)
        order = key.argsort()
        self.sorted_key = key[order]
        self.group_counts = torch.zeros(groups, dtype=counts.dtype, device=counts.device).index_add(0, group, counts)
        self.start = torch.searchsorted(group[order], torch.arange(groups, device=group.device))
        self.prefix_counts = pad(counts[order].cumsum(0), (1, 0))
        self.prefix_sum = pad((counts * threshold)[order].cumsum(0), (1, 0))

    def key(self, value: Tensor, group: Tensor) -> Tensor:
        """A number that sorts by group, then by value; values beyond all thresholds stay in their group."""
        return group * (self.high - self.low + 1) + (value.clamp(self.low, self.high) - self.low)

    def excess(self, value: Tensor, group: Tensor) -> Tensor:
        """(N,) Σ_t count_t [value − t]₊ over the thresholds t of the group, for (N,) values in (N,) groups."""
        start = self.start[group]
        end = torch.searchsorted(self.sorted_key, self.key(value.detach(), group))
        counts = self.prefix_counts[end] - self.prefix_counts[start]
        return counts * value - (self.prefix_sum[end] - self.prefix_sum[start])
