"""The variance term of VICReg by itself."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.losses.vicreg import covariances, variance_hinge
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs


@loss(
    "variance",
    title="Variance",
    family="regulariser",
    paper="Bardes, Ponce, LeCun: VICReg: variance-invariance-covariance regularization (2022)",
    geometry="none",
    references=("batch", "proxy_set"),
    takes="batch",
)
def variance(pairs: Pairs, *, deviation: PositiveFloat = 1.0, epsilon: PositiveFloat = 1e-4) -> Tensor:
    """Penalize coordinates of the raw embeddings that vary too little; add it to any objective.

    L = 1/D Σ_d [deviation − √(Var(x_d) + ε)]₊, the variance over the batch.
    """
    queries = ops.require.queries(pairs, "variance")
    return variance_hinge(covariances(queries.embeddings, queries.weight), deviation, epsilon)
