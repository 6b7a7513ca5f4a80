"""Lifted structure loss in its original form and in the generalised one."""

import torch
from torch import Tensor

from equimetric.components import loss
from equimetric.losses.preconditions import check_square_batch
from equimetric.ops.masks import has_any
from equimetric.ops.reductions import log_sum_exp, mean, mean_anchors
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

__all__ = ["lifted", "lifted_generalized"]


@loss(
    "lifted",
    title="Lifted structure",
    family="ranking",
    paper="Oh Song, Xiang, Jegelka, Savarese: Deep metric learning via lifted structured feature embedding (2016)",
    geometry="euclidean",
    references="batch",
    search={"margin": Uniform(0.5, 2.0)},
)
def lifted(pairs: Pairs, *, margin: float = 1.0) -> Tensor:
    """Every positive pair competes with all negatives of both its ends.

    J_ij = log(Σ_{k∈N_i} e^{margin − d_ik} + Σ_{l∈N_j} e^{margin − d_jl}) + d_ij, L = mean_{positives} ½ [J]₊²;
    the mean over ordered pairs is the paper's 1/(2|P|) Σ over unordered ones. The paper trains on raw embeddings
    (`normalize=False`).
    """
    check_square_batch(pairs, "lifted")
    distance = pairs.distance()
    negatives = log_sum_exp(margin - distance, pairs.negative, pairs.weight)
    columns, is_positive = pairs.positive_slots()
    competition = torch.logaddexp(negatives[:, None], negatives[columns]) + distance.gather(1, columns)
    has_negatives = has_any(pairs.negative)
    compared = is_positive & (has_negatives[:, None] | has_negatives[columns])
    weight = None if pairs.weight is None else pairs.weight.gather(1, columns)
    return mean(competition.relu().square() / 2, compared, weight)


@loss(
    "lifted_generalized",
    title="Lifted structure (generalised)",
    family="ranking",
    rowwise=True,
    paper="Hermans, Beyer, Leibe: In defense of the triplet loss for person re-identification (2017)",
    geometry=("euclidean", "cosine"),
    aliases={"distance": "geometry"},
    search={"margin": Uniform(0.0, 2.0)},
)
def lifted_generalized(pairs: Pairs, *, margin: float = 1.0, denominator: str = "batch") -> Tensor:
    """All positives of an anchor together compete with all its negatives.

    L = 1/B Σ_i [log Σ_{j∈P_i} e^{d_ij} + log Σ_{k∈N_i} e^{margin − d_ik}]₊, with −s for d in the cosine geometry. An
    anchor without positives or negatives gives 0; `denominator='valid'` leaves it out of the mean.
    """
    of_positives, positive, weight = pairs.packed_positives(pairs.similarity)
    positives = log_sum_exp(-of_positives, positive, weight)
    negatives = log_sum_exp(margin + pairs.similarity, pairs.negative, pairs.weight)
    valid = has_any(pairs.positive) & has_any(pairs.negative)
    return mean_anchors((positives + negatives).relu(), valid, denominator)
