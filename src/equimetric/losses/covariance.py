"""The covariance term of VICReg by itself."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.losses.vicreg import covariances, squared_covariance
from equimetric.pairs import Pairs


@loss(
    "covariance",
    title="Covariance",
    family="regulariser",
    paper="Bardes, Ponce, LeCun: VICReg: variance-invariance-covariance regularization (2022)",
    geometry="none",
    references=("batch", "proxy_set"),
    takes="batch",
    known_as=("Decorrelation",),
)
def covariance(pairs: Pairs) -> Tensor:
    """Penalize the covariance of every two coordinates of the raw embeddings; add it to any objective.

    L = 1/D Σ_{d≠e} Cov(x_d, x_e)², the covariance over the batch.
    """
    queries = ops.require.queries(pairs, "covariance")
    return squared_covariance(covariances(queries.embeddings, queries.weight))
