"""Centre-invariant penalty: proxies of equal length."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs


@loss(
    "center_invariant",
    title="Centre-invariant",
    family="regulariser",
    paper="Wu, Liu, Li, Wang: Deep face recognition with center invariant loss (2017)",
    geometry="none",
    references="proxy_set",
    takes="batch",
)
def center_invariant(pairs: Pairs) -> Tensor:
    """Penalize unequal proxy norms, so that no class is favoured; add it to an objective with proxies.

    L = mean_c ¼ (‖w_c‖² − mean_k ‖w_k‖²)²
    """
    squares = ops.require.queries(pairs, "center_invariant").embeddings.square().sum(1)
    return ops.mean((squares - squares.mean()).square() / 4)
