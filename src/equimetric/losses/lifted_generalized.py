"""Lifted structure loss in its generalised form."""

from typing import Literal

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "lifted_generalized",
    title="Lifted structure (generalised)",
    family="ranking",
    separable=True,
    paper="Hermans, Beyer, Leibe: In defense of the triplet loss for person re-identification (2017)",
    geometry=("euclidean", "cosine"),
    search={"margin": Uniform(0.0, 2.0)},
    known_as=("GeneralizedLiftedStructureLoss",),
)
def lifted_generalized(pairs: Pairs, *, margin: float = 1.0, reduction: Literal["valid", "batch"] = "batch") -> Tensor:
    """Compare all positives of an anchor together with all its negatives.

    L = 1/B Σ_i [log Σ_{j∈P_i} e^{d_ij} + log Σ_{k∈N_i} e^{margin − d_ik}]₊, with −s for d in the cosine geometry. An
    anchor without positives or negatives gives 0; `reduction='valid'` leaves it out of the mean.
    """
    positive = ops.positives(pairs)
    positives = ops.log_sum_exp(-positive.gather(pairs.similarity), positive.mask, positive.weight)
    negatives = ops.log_sum_exp(margin + pairs.similarity, pairs.negative, pairs.weight)
    valid = ops.has_any(pairs.positive) & ops.has_any(pairs.negative)
    return ops.special.reduce_rows((positives + negatives).relu(), valid, reduction, choices=("valid", "batch"))
