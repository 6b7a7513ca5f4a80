"""Angular loss over all negatives."""

from math import radians, tan

import torch
from torch import Tensor
from torch.nn.functional import softplus

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import Acute
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


def coefficients(alpha_deg: float) -> tuple[float, float]:
    """4 tan²α and 2(1 + tan²α), the factors of negatives and of the positive in f_apn."""
    squared = tan(radians(alpha_deg)) ** 2
    return 4 * squared, 2 * (1 + squared)


@loss(
    "angular",
    title="Angular",
    family="ranking",
    per_query=True,
    paper="Wang, Zhou, Wen, Liu, Lin: Deep metric learning with angular loss (2017)",
    references="batch",
    search={"alpha_deg": Uniform(36.0, 55.0)},
    exempt={
        "multiplicity": "rows and columns are the same samples: columns cannot be repeated alone",
        "large static shapes": "many positives are listed, each to be compared with all references",
    },
)
def angular(pairs: Pairs, *, alpha_deg: Acute = 45.0) -> Tensor:
    """Bound the angle at the negative of the triangle of anchor, positive and negative.

    L = mean_{(a,p)} log(1 + Σ_{n∈N_a} e^{f_apn}), f_apn = 4 tan²α (x_a + x_p)·x_n − 2(1 + tan²α) x_a·x_p.
    """
    ops.require.square_batch(pairs, "angular")
    push, pull = coefficients(alpha_deg)
    similarity, positive = pairs.similarity, ops.special.list_positives(pairs)
    weight = None if pairs.weight is None else pairs.weight[:, None]
    terms = []
    for part, part_similarity in positive.split(positive.gather(similarity)):
        both_ends = push * (similarity[:, None] + similarity[part.columns])
        negatives = ops.log_sum_exp(both_ends, pairs.negative[:, None], weight)
        terms.append(softplus(negatives - pull * part_similarity))
    compared = positive.mask & ops.has_any(pairs.negative)[:, None]
    return ops.mean(torch.cat(terms, 1), compared, positive.weight)
