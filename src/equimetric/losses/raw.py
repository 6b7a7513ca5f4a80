"""The RAW loss of the unified view, which is the multi-similarity loss."""

from torch import Tensor

from equimetric.components import loss
from equimetric.losses.multi_similarity import SEARCH, multi_similarity
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs


@loss(
    "raw",
    title="RAW",
    family="ranking",
    separable=True,
    paper="Anonymous: A unified view of deep metric learning via gradient analysis (2019)",
    implies={"epsilon": "multi_similarity"},
    search=SEARCH,
)
def raw(pairs: Pairs, *, alpha: PositiveFloat = 2.0, beta: PositiveFloat = 50.0, base: float = 0.5) -> Tensor:
    """Weigh pairs by relative and absolute similarity: term by term the multi-similarity loss.

    The paper's γ = `base`; its valid-triplet hard mining (VTHM) with margin λ is the miner with `epsilon` = λ.
    """
    return multi_similarity(pairs, alpha=alpha, beta=beta, base=base)
