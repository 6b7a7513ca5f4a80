"""Angular loss in N-pair form."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.losses.angular import coefficients
from equimetric.losses.npairs import EXEMPT
from equimetric.option_values import Acute, RowReduction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "angular_npair",
    title="Angular (N-pair)",
    family="ranking",
    per_query=True,
    paper="Wang, Zhou, Wen, Liu, Lin: Deep metric learning with angular loss (2017)",
    references="batch",
    takes="batch",
    search={"alpha_deg": Uniform(36.0, 55.0)},
    exempt=EXEMPT,
)
def angular_npair(pairs: Pairs, *, alpha_deg: Acute = 45.0, reduction: RowReduction = "mean") -> Tensor:
    """Angular loss with one pair per class, whose negatives are the positives of the other classes.

    L = 1/N Σ_i log(1 + Σ_{j≠i} e^{f_ij}), f_ij = 4 tan²α (a_i + p_i)·p_j − 2(1 + tan²α) a_i·p_i, (a_i, p_i) the first
    two rows of each of the N classes that have two. A pair counts as often as its anchor, and in the sums of others
    as often as its positive; `reduction` as of N-pairs.
    """
    references = ops.require.queries(pairs, "angular_npair").references
    if references is None:
        ops.require.square_batch(pairs, "angular_npair")
    push, pull = coefficients(alpha_deg)
    chosen = ops.special.first_pairs(pairs, "angular_npair")
    anchor_logits = chosen.logits(pairs.similarity)
    among_references = pairs.similarity if references is None else references @ references.T
    positive_logits = chosen._replace(anchor=chosen.positive).logits(among_references)
    angle = push * (anchor_logits + positive_logits) - pull * anchor_logits.diagonal()[:, None]
    weight = None if pairs.weight is None else chosen.logits(pairs.weight)
    values = ops.log1p_sum_exp(angle, chosen.competes, weight)
    return chosen.reduce(values, chosen.is_pair, len(pairs.similarity), reduction)
