"""Triplet loss over all triplets, a band of them, or a list."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import TermReduction
from equimetric.pairs import Pairs, TripletBand, Triplets
from equimetric.search_space import Uniform


@loss(
    "triplet",
    title="Triplet",
    family="ranking",
    separable={"swap": False},
    paper="Schroff, Kalenichenko, Philbin: FaceNet (2015);"
    " Hermans, Beyer, Leibe: In defense of the triplet loss (2017)",
    geometry=("euclidean", "sqeuclidean", "cosine", "dot"),
    takes="triplets",
    aliases={"mining": "selection"},
    search={"margin": Uniform(-0.2, 2.0)},
    known_as=("TripletMarginLoss", "TripletMarginWithDistanceLoss", "BatchAllTripletLoss"),
)
def triplet(
    selected: Pairs | Triplets | TripletBand,
    *,
    margin: float | None = None,
    soft: bool = False,
    swap: bool = False,
    reduction: TermReduction | None = None,
) -> Tensor:
    """A negative must be farther than a positive by a margin.

    L = R_{(a,p,n)} [v + margin]₊ or, `soft`, softplus(v + margin), with the violation v = s_an − s_ap. In the
    euclidean geometry v = d_ap − d_an, in the squared one v = d²_ap − d²_an.
    With `swap` a negative nearer to the positive than to the anchor is compared from there (Balntas et al., 2016):
    v = max(s_an, s_pn) − s_ap; it needs the batch as its own references.
    Unless given, the margin is 0.05, 0.2 of squared distances, and 0 for the soft form.
    R = 'nonzero', 'mean', 'sum', 'batch' (the sum / number of queries), 'valid' (the sum / number of queries that have
    triplets) or 'none' (every term, in order of anchor, positive, negative); by default 'nonzero' over many triplets
    per anchor, 'mean' over listed triplets.
    """
    pairs = selected if isinstance(selected, Pairs) else selected.pairs
    if swap:
        ops.require.square_batch(pairs, "triplet", "swap=True")
    if margin is None:
        margin = 0.0 if soft else pairs.default_margin()
    reduction = reduction or ("mean" if isinstance(selected, Triplets) else "nonzero")
    return ops.triplet_sum(selected, margin, soft=soft, swap=swap, reduction=reduction)
