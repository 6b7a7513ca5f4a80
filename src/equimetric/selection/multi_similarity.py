"""The miner of the multi-similarity loss, which is also valid-triplet hard mining (VTHM)."""

from equimetric import ops
from equimetric.components import selection
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@selection(
    "multi_similarity",
    other_names=("ms_masks",),
    paper="Wang, Han, Huang, Dong, Scott: Multi-similarity loss with general pair weighting (2019)",
    search={"epsilon": Uniform(0.0, 1.0)},
)
def mine_multi_similarity(pairs: Pairs, *, epsilon: float = 0.1) -> Pairs:
    """Keep a positive that is farther than the closest negative, a negative closer than the farthest positive.

    Positives with s_ij < max_{k∈N_i} s_ik + ε, negatives with s_ik > min_{j∈P_i} s_ij − ε; an anchor that lacks
    positives or negatives keeps nothing.
    """
    similarity = pairs.similarity.detach()
    hardest_negative = ops.special.row_max(similarity, pairs.negative)
    hardest_positive = ops.special.row_min(similarity, pairs.positive)
    return pairs.keep(
        positive=similarity < hardest_negative + epsilon,
        negative=similarity > hardest_positive - epsilon,
    )
