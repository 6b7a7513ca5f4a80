"""Prototypical networks: classify queries by their distance to class means."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import RowReduction
from equimetric.pairs import Pairs


@loss(
    "prototypical",
    title="Prototypical",
    family="proxy",
    separable=True,
    paper="Snell, Swersky, Zemel: Prototypical networks for few-shot learning (2017)",
    geometry=("sqeuclidean", "euclidean"),
    references="prototypes",
    normalize=False,
    known_as=("ProtoNet", "PrototypicalNetworks"),
)
def prototypical(pairs: Pairs, *, reduction: RowReduction = "mean") -> Tensor:
    """Classify the queries of an episode by their distance to the means of its support.

    L = mean_{queries q} −log softmax_c(−d(x_q, μ_c))_{y_q}, d = ‖x_q − μ_c‖² or, in the euclidean geometry, its root;
    several episodes in a batch give the mean of their losses.
    """
    return ops.cross_entropy(pairs.similarity, pairs, reduction=reduction)
