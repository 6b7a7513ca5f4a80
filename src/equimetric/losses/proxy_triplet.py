"""Proxy-Triplet: the proxy of the right class must be closer than those of all others."""

from typing import Literal

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat, TermReduction
from equimetric.pairs import Pairs, TripletBand, Triplets
from equimetric.search_space import Uniform

NAMES = {"sum_neg_mean_batch": "batch", "nonzero_mean": "nonzero"}
"""The names of reductions in papers on proxies."""


@loss(
    "proxy_triplet",
    title="Proxy-Triplet",
    family="proxy",
    separable=True,
    paper="Movshovitz-Attias, Toshev, Leung, Ioffe, Singh: No fuss distance metric learning using proxies (2017)",
    geometry=("sqeuclidean", "euclidean", "cosine"),
    references="proxies",
    takes="triplets",
    aliases={"mining": "selection"},
    search={"margin": Uniform(0.05, 2.0)},
)
def proxy_triplet(
    selected: Pairs | Triplets | TripletBand,
    *,
    margin: float = 1.0,
    embedding_multiplier: PositiveFloat = 1.0,
    reduction: TermReduction | Literal["sum_neg_mean_batch", "nonzero_mean"] = "mean",
) -> Tensor:
    """A sample must be closer to the proxy of its class than to any other by a margin.

    L = R_{i, c≠y_i} [m² d(x_i, p_{y_i}) − m² d(x_i, p_c) + margin]₊, d = ‖x − p‖² of unit vectors, m =
    `embedding_multiplier` the length that they are taken to have. R = 'mean' over all samples and negative proxies;
    'batch', also called 'sum_neg_mean_batch', sums over the proxies and takes the mean over samples; 'nonzero' or
    'nonzero_mean', 'sum' and 'valid' are those of triplet; 'none' gives the mean over the proxies for each sample.
    """
    # A margin on longer vectors is a smaller one on unit vectors.
    scale = embedding_multiplier**2
    if reduction == "none" and isinstance(selected, Pairs):
        positive_similarity = ops.row_sum(selected.similarity, selected.positive)[:, None]
        violation = (selected.similarity - positive_similarity + margin / scale).relu()
        return scale * ops.row_mean(violation, selected.negative, selected.weight)
    return scale * ops.triplet_sum(selected, margin / scale, reduction=NAMES.get(reduction, reduction))
