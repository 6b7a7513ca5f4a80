"""Global orthogonal regularisation: negatives as spread out as random directions are."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs


@loss(
    "gor",
    title="GOR",
    family="regulariser",
    separable=True,
    paper="Zhang, Yu, Kumar, Chang: Learning spread-out local feature descriptors (2017)",
    references=("batch", "memory", "proxy_set"),
    exempt={"monotone": "negatives are drawn to be orthogonal, also from beyond"},
    known_as=("GlobalOrthogonalRegularization", "GlobalOrthogonalRegularizationLoss", "SpreadOut"),
)
def gor(pairs: Pairs) -> Tensor:
    """Spread negatives out as random directions are, by mean and second moment of similarity; add it to any loss.

    L = M₁² + [M₂ − 1/D]₊, M₁ = mean_{negatives} s, M₂ = mean_{negatives} s², D the dimension of the embedding.
    """
    dim = ops.require.queries(pairs, "gor").embeddings.shape[1]
    first = ops.mean(pairs.similarity, pairs.negative, pairs.weight)
    second = ops.mean(pairs.similarity.square(), pairs.negative, pairs.weight)
    return first.square() + (second - 1 / dim).relu()
