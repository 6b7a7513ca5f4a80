"""Pairs of all distances equally often."""

import torch
from torch import Tensor

from equimetric.components import selection
from equimetric.option_values import PositiveInt
from equimetric.pairs import Pairs
from equimetric.search_space import Integer


@selection(
    "uniform_histogram",
    paper="Musgrave, Belongie, Lim: PyTorch metric learning (2020)",
    search={"num_bins": Integer(10, 200)},
    separable=False,
    exempt={
        "permutation": "draws at random",
        "multiplicity": "draws at random",
        "static shapes": "the drawn pairs are listed",
    },
)
def uniform_histogram(
    pairs: Pairs,
    *,
    num_bins: PositiveInt = 100,
    pos_per_bin: PositiveInt = 10,
    neg_per_bin: PositiveInt = 10,
    generator: torch.Generator | None = None,
) -> Pairs:
    """Draw the same number of pairs, with replacement, from every bin of a histogram of distances.

    `num_bins` bins of equal width span the distances of the positives, as many those of the negatives; of each bin
    that is not empty `pos_per_bin` or `neg_per_bin` pairs are drawn. A pair counts as often as it is drawn. Draws from
    torch's global generator unless one is given.
    """
    similarity = pairs.similarity.detach()
    draw_counts = torch.zeros_like(similarity)
    for mask, per_bin in ((pairs.positive, pos_per_bin), (pairs.negative, neg_per_bin)):
        indices = mask.reshape(-1).nonzero()[:, 0]
        if len(indices):
            counts = pairs.multiplicity(mask).reshape(-1)[indices]
            sampled = draw_by_bin(pairs.distance().detach().reshape(-1)[indices], counts, num_bins, per_bin, generator)
            draw_counts.view(-1).index_add_(0, indices[sampled], torch.ones_like(sampled, dtype=draw_counts.dtype))
    return pairs.replace(weight=draw_counts)


def draw_by_bin(
    distance: Tensor, counts: Tensor, num_bins: int, per_bin: int, generator: torch.Generator | None
) -> Tensor:
    """(bins · per_bin,) indices into (N,) distances, as many of every bin that is not empty, by multiplicity."""
    low, high = distance.aminmax()
    width = torch.where(high > low, (high - low) / num_bins, 1.0)
    # Distances that are not finite fall into the first bin: the objective passes them on.
    bins = ((distance - low) / width).nan_to_num(0.0).floor().clamp(0, num_bins - 1).long()
    order = bins.argsort(stable=True)
    bin_sizes = torch.bincount(bins)
    last = bin_sizes.cumsum(0)[bin_sizes > 0] - 1
    # A draw is a number between the prefix sums of a bin's multiplicities.
    cumulative = counts.double()[order].cumsum(0)
    upper = cumulative[last]
    lower = torch.cat([torch.zeros_like(upper[:1]), upper[:-1]])
    fraction = torch.rand(len(last), per_bin, dtype=torch.float64, device=distance.device, generator=generator)
    targets = lower[:, None] + fraction * (upper - lower)[:, None]
    return order[torch.searchsorted(cumulative, targets.flatten(), right=True).clamp_max(len(order) - 1)]
