"""Quadruplet loss: a positive pair must also be closer than pairs of two other classes."""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from equimetric.components import loss
from equimetric.losses.preconditions import class_labels, is_square_batch
from equimetric.losses.triplet import pair_weight, triplet
from equimetric.ops.chunks import compute_chunked
from equimetric.ops.masks import to_dtype
from equimetric.ops.reductions import ratio
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

__all__ = ["quadruplet"]


@loss(
    "quadruplet",
    title="Quadruplet",
    family="ranking",
    paper="Chen, Chen, Zhang, Huang: Beyond triplet loss, a deep quadruplet network for re-identification (2017)",
    geometry="euclidean",
    search={"margin1": Uniform(0.1, 1.0), "margin2": Uniform(0.05, 0.5)},
)
def quadruplet(pairs: Pairs, *, margin1: float = 0.2, margin2: float = 0.1, squared: bool = False) -> Tensor:
    """A positive must be closer than the anchor's negatives, and than any two samples of two other classes.

    L = mean_{(a,p,n)} [d_ap − d_an + margin1]₊ + mean_{(a,p,k,l)} [d_ap − d_kl + margin2]₊, the classes of a, k and l
    all different; the second part is 0 where a batch has fewer than three. `squared` takes d² for d; the margins of
    the paper are then 1 and 0.5.
    """
    distance = pairs.distance()
    pairs = pairs.replace(similarity=-(distance.square() if squared else distance))
    triplets = compute_chunked(partial(triplet, margin=margin1, reduction="mean"), pairs)
    return triplets + ratio(*other_classes_sum(pairs, margin2))


def other_classes_sum(pairs: Pairs, margin: float) -> tuple[Tensor, Tensor]:
    """Σ [s_kl − s_ap + margin]₊ over quadruples, and the number of quadruples.

    A negative pair (k, l) meets all positive pairs but those of the classes of k and of l.
    """
    labels, member = torch.unique(class_labels(pairs, "quadruplet"), return_inverse=True)
    columns, is_positive = pairs.positive_slots()
    positive = pairs.similarity.gather(1, columns)[is_positive].double() - margin
    times = pair_weight(pairs, columns)[is_positive].double()
    owner = member[:, None].expand_as(columns)[is_positive]
    if not len(positive):
        return pairs.similarity.sum() * 0, pairs.similarity.new_zeros(())

    every = Thresholds(positive, times, torch.zeros_like(owner), 1)
    by_class = Thresholds(positive, times, owner, len(labels) + 1)
    class_of_column = member if is_square_batch(pairs) else reference_classes(pairs, member, len(labels))
    in_row, in_column = (negatives_along(pairs, dimension) for dimension in (1, 0))
    present = in_row.sum() * times.sum()
    present = present - in_row @ by_class.number[member] - in_column @ by_class.number[class_of_column]

    # Only negatives above the lowest threshold add anything: few of them, once training is under way.
    row, column = (pairs.negative & (pairs.similarity.detach() > positive.detach().min())).nonzero(as_tuple=True)
    similarity = pairs.similarity[row, column].double()
    excess = every.excess(similarity, torch.zeros_like(row))
    excess = excess - by_class.excess(similarity, member[row]) - by_class.excess(similarity, class_of_column[column])
    value = (excess if pairs.weight is None else excess * pairs.weight[row, column]).sum()
    return value.to(pairs.similarity.dtype), present.to(pairs.similarity.dtype)


def negatives_along(pairs: Pairs, dimension: int) -> Tensor:
    """Number of negatives in each row (dimension 1) or column (0), by multiplicity."""
    if pairs.weight is None:
        return pairs.negative.sum(dimension, dtype=torch.int32).double()
    return (pairs.negative * pairs.weight).sum(dimension, dtype=torch.float64)


def reference_classes(pairs: Pairs, member: Tensor, classes: int) -> Tensor:
    """(R,) the number of every reference's class, `classes` for a class that no query has.

    Pairs know the labels of queries only: a reference is of the class of the queries to which it is a positive, or
    else of those to which it is never a negative. This is exact where no selection has dropped pairs.
    """
    of_class = torch.nn.functional.one_hot(member, classes).T.to(pairs.similarity.dtype)
    as_positive = of_class @ to_dtype(pairs.positive, of_class.dtype)
    as_negative = of_class @ to_dtype(pairs.negative, of_class.dtype)
    found = ((as_positive > 0) | (as_negative == 0)).any(0)
    return torch.where(found, (as_positive * (len(member) + 1) - as_negative).argmax(0), classes)


class Thresholds:
    """(T,) thresholds in groups, sorted once, so that sums over those below a value are differences of prefix sums."""

    def __init__(self, threshold: Tensor, times: Tensor, group: Tensor, groups: int) -> None:
        self.low, self.high = threshold.detach().min(), threshold.detach().max() + 1
        key = self.key(threshold.detach(), group)
        order = key.argsort()
        self.sorted_key = key[order]
        self.number = torch.zeros(groups, dtype=times.dtype, device=times.device).index_add(0, group, times)
        self.start = torch.searchsorted(group[order], torch.arange(groups, device=group.device))
        self.prefix_times = pad(times[order].cumsum(0), (1, 0))
        self.prefix_sum = pad((times * threshold)[order].cumsum(0), (1, 0))

    def key(self, value: Tensor, group: Tensor) -> Tensor:
        """A number that sorts by group, then by value; values beyond all thresholds keep to their group."""
        return group * (self.high - self.low + 1) + (value.clamp(self.low, self.high) - self.low)

    def excess(self, value: Tensor, group: Tensor) -> Tensor:
        """(N,) Σ_t times_t [value − t]₊ over the thresholds t of the group, for (N,) values in (N,) groups."""
        start = self.start[group]
        end = torch.searchsorted(self.sorted_key, self.key(value.detach(), group))
        times = self.prefix_times[end] - self.prefix_times[start]
        return times * value - (self.prefix_sum[end] - self.prefix_sum[start])
