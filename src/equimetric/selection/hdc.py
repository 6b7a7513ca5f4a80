"""The hardest share of all pairs of a batch, as hard-aware cascades choose them."""

import torch
from torch import Tensor

from equimetric.components import selection
from equimetric.option_values import UnitFraction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

ROUNDING = 1e-9
"""Tolerance of share · n, so that 0.2 of 5 pairs is one pair."""


@selection(
    "hdc",
    paper="Yuan, Yang, Zhang: Hard-aware deeply cascaded embedding (2017)",
    search={"share": Uniform(0.1, 1.0)},
    separable=False,
)
def hardest_share(pairs: Pairs, *, share: UnitFraction = 0.5) -> Pairs:
    """Keep the hardest pairs of the whole batch: the farthest positives and the closest negatives, a share of each.

    Of n positives those at least as far as the ⌈share · n⌉-th farthest, of the negatives those at least as close as
    the ⌈share · n⌉-th closest; pairs that tie with the last one are kept, too.
    """
    similarity, weighted = pairs.similarity.detach(), pairs.apply_query_weight()
    return pairs.keep(
        positive=similarity <= weighted_quantile(similarity, weighted.multiplicity(pairs.positive), share),
        negative=similarity >= -weighted_quantile(-similarity, weighted.multiplicity(pairs.negative), share),
    )


def weighted_quantile(values: Tensor, counts: Tensor, share: float) -> Tensor:
    """The ⌈share · n⌉-th smallest of n values, each counted as often as `counts` says; −∞ where that is none."""
    present = counts > 0
    ascending, order = values[present].sort()
    cumulative = counts[present][order].cumsum(0)
    target = share * cumulative[-1:] * (1 - ROUNDING)
    candidates = ascending[cumulative >= target] if share > 0 else ascending[:0]
    return torch.cat([candidates, values.new_full((1,), -torch.inf)])[0]
