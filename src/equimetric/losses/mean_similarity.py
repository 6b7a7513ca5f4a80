"""A target for the mean similarity of a batch."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "mean_similarity",
    title="Mean similarity",
    family="regulariser",
    paper="Liao, Tsiligkaridis, Kulis: Supervised metric learning to rank via contextual similarity (2023)",
    references=("batch", "proxy_set"),
    takes="batch",
    search={"target": Uniform(0.0, 0.5)},
    exempt={"monotone": "the mean of all similarities is drawn to a target, whatever the labels"},
)
def mean_similarity(pairs: Pairs, *, target: float = 0.25) -> Tensor:
    """Pull the mean similarity of a batch towards a target; add it to any objective.

    L = (mean_ij s_ij − target)², over all pairs of a batch, each sample with itself included.
    """
    weight = pairs.weight
    rows = pairs.similarity.mean(1) if weight is None else ops.divide((pairs.similarity * weight).sum(1), weight.sum(1))
    return (ops.mean(rows) - target).square()
