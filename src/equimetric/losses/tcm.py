"""The threshold-consistent margin: the same two similarities to aim at for every class."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform


@loss(
    "tcm",
    title="TCM",
    family="regulariser",
    separable=True,
    paper="Zhang et al.: Threshold-consistent margin loss for open-world deep metric learning (2024)",
    search={
        "m_pos": Uniform(0.8, 0.95),
        "m_neg": Uniform(0.3, 0.6),
        "lam_pos": LogUniform(0.1, 2.0),
        "lam_neg": LogUniform(0.1, 2.0),
    },
    known_as=("ThresholdConsistentMarginLoss",),
)
def tcm(pairs: Pairs, *, m_pos: float = 0.9, m_neg: float = 0.5, lam_pos: float = 1.0, lam_neg: float = 1.0) -> Tensor:
    """Hold hard pairs of every class to the same two absolute similarities; add it to any base objective.

    L = λ⁺ mean_{positives with s ≤ m⁺} (m⁺ − s) + λ⁻ mean_{negatives with s ≥ m⁻} (s − m⁻)

    It is meant to make error rates of classes alike. On frozen features, where hardly a positive reaches m⁺, it made
    those of some methods less alike: measure it, on classes that were not trained on.
    """
    similarity = ops.special.similarity(pairs)
    pull = ops.Hinge(m_pos - similarity, pairs.positive, factor=lam_pos)
    push = ops.Hinge(similarity - m_neg, pairs.negative, factor=lam_neg)
    return ops.sum_hinges(pull, push, pairs.weight, "nonzero", inclusive=True)
