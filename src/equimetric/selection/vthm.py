"""Valid-triplet hard mining: the multi-similarity miner under the name and margin of the unified view."""

from equimetric.components import selection
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform
from equimetric.selection.multi_similarity import mine_multi_similarity


@selection(
    "vthm",
    paper="Anonymous: A unified view of deep metric learning via gradient analysis (2019)",
    search={"epsilon": Uniform(0.0, 1.0)},
)
def vthm(pairs: Pairs, *, epsilon: float = 0.1) -> Pairs:
    """Keep pairs of valid triplets: a positive farther than the closest negative less λ, and the negatives alike.

    Positives with s_ij < max_{k∈N_i} s_ik + λ, negatives with s_ik > min_{j∈P_i} s_ij − λ, λ = `epsilon`: it is
    `multi_similarity`.
    """
    return mine_multi_similarity(pairs, epsilon=epsilon)
