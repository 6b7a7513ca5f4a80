"""A penalty on the sum of an embedding's coordinates."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs


@loss(
    "zero_mean",
    title="Zero mean",
    family="regulariser",
    paper="Yuan, Deng, Tang, Tang, Chen: Signal-to-noise ratio: a robust distance metric (2019)",
    geometry="none",
    references=("batch", "proxy_set"),
    takes="batch",
)
def zero_mean(pairs: Pairs) -> Tensor:
    """Penalize vectors whose coordinates do not add up to 0; add it to any objective, as its paper does to SNR losses.

    L = mean_i |Σ_d x_id| of the embeddings as the network gives them; of the proxies of the other terms with
    references='proxy_set'.
    """
    return ops.mean(ops.require.queries(pairs, "zero_mean").embeddings.sum(1).abs())
