"""Lifted structure loss in its original form."""

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "lifted",
    title="Lifted structure",
    family="ranking",
    per_query=True,
    paper="Oh Song, Xiang, Jegelka, Savarese: Deep metric learning via lifted structured feature embedding (2016)",
    geometry="euclidean",
    references="batch",
    search={"margin": Uniform(0.5, 2.0)},
    exempt={
        "multiplicity": "rows and columns are the same samples: columns cannot be repeated alone",
        "large static shapes": "many positives are listed, each to be compared with all references",
    },
    known_as=("LiftedStructureLoss", "LiftedStructLoss"),
)
def lifted(pairs: Pairs, *, margin: float = 1.0) -> Tensor:
    """Compare every positive pair with all negatives of both its ends.

    J_ij = log(Σ_{k∈N_i} e^{margin − d_ik} + Σ_{l∈N_j} e^{margin − d_jl}) + d_ij, L = mean_{positives} ½ [J]₊²;
    the mean over ordered pairs is the paper's 1/(2|P|) Σ over unordered ones. The paper trains on raw embeddings
    (`normalize=False`).
    """
    ops.require.square_batch(pairs, "lifted")
    distance, positive = pairs.distance(), ops.special.list_positives(pairs)
    negatives = ops.log_sum_exp(margin - distance, pairs.negative, pairs.weight)
    has_negatives = ops.has_any(pairs.negative)
    both_ends = torch.logaddexp(negatives[:, None], negatives[positive.columns])
    compared = positive.mask & (has_negatives[:, None] | has_negatives[positive.columns])
    return ops.mean((both_ends + positive.gather(distance)).relu().square() / 2, compared, positive.weight)
