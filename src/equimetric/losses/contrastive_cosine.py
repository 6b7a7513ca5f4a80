"""Contrastive loss on cosines."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "contrastive_cosine",
    title="Contrastive (cosine)",
    family="ranking",
    separable=True,
    paper="Wang, Zhang, Huang, Scott: Cross-batch memory for embedding learning (2020)",
    search={"lam": Uniform(0.0, 0.9)},
    known_as=("CosineEmbeddingLoss",),
)
def contrastive_cosine(pairs: Pairs, *, lam: float = 0.5, pos_offset: float = 1.0) -> Tensor:
    """Pull every positive with constant force, push negatives only above a threshold.

    L = 1/B Σ_i { Σ_{j∈P_i} (pos_offset − s_ij) + Σ_{k∈N_i} [s_ik − λ]₊ }
    """
    pull = ops.row_sum(pos_offset - pairs.similarity, pairs.positive, pairs.weight)
    push = ops.row_sum((pairs.similarity - lam).relu(), pairs.negative, pairs.weight)
    return ops.mean(pull + push)
