"""Easy-positive softmax loss: only the closest positive, against the closest negative."""

from torch import Tensor
from torch.nn.functional import softplus

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs, round_ties
from equimetric.search_space import Uniform


@loss(
    "ephn",
    title="EPHN",
    family="ranking",
    separable=True,
    paper="Xuan, Stylianou, Pless: Improved embeddings with easy positive triplet mining (2020)",
    search={"sigma": Uniform(0.05, 0.5)},
    known_as=("EasyPositiveHardNegative",),
)
def ephn(pairs: Pairs, *, sigma: PositiveFloat = 0.1, semihard: bool = False) -> Tensor:
    """Pull an anchor to its closest positive only, not to all of its class.

    L = mean_a softplus((s_an − s_ap) / σ), p the most similar positive, n the most similar negative or, `semihard`,
    the most similar one with s_an < s_ap; anchors without either are left out.
    """
    similarity, ranks = pairs.similarity, round_ties(pairs.similarity)
    positive = ops.special.row_argmax(ranks, pairs.positive)[:, None]
    allowed = pairs.negative & (ranks < ranks.gather(1, positive)) if semihard else pairs.negative
    negative = ops.special.row_argmax(ranks, allowed)[:, None]
    violation = (similarity.gather(1, negative) - similarity.gather(1, positive))[:, 0]
    return ops.mean(softplus(violation / sigma), ops.has_any(pairs.positive) & ops.has_any(allowed))
