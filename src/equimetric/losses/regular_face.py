"""RegularFace: the proxies of different classes apart from one another."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs


@loss(
    "regular_face",
    title="RegularFace",
    family="regulariser",
    paper="Zhao, Xu, Cheng: RegularFace: deep face recognition via exclusive regularization (2019)",
    references="proxy_set",
    takes="batch",
)
def regular_face(pairs: Pairs) -> Tensor:
    """Push every proxy away from the nearest one of another class; add it to an objective with proxies.

    L = mean_c max_{k: class(k) ≠ class(c)} cos(w_c, w_k); several centres of one class do not repel one another.
    """
    return ops.mean(ops.special.row_max(pairs.similarity, pairs.negative)[:, 0])
