"""PNP: only the negatives that stand before a positive are penalised."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.losses.smooth_ap import soft_rank
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import Choice, LogUniform


@loss(
    "pnp",
    title="PNP",
    family="ap-surrogate",
    separable={"include_query": False},
    paper="Li et al.: Rethinking the optimization of average precision, only penalizing negative instances before "
    "positive ones is enough (2022)",
    search={
        "variant": Choice(("O", "Iu", "Ib", "Ds", "Dq")),
        "tau": LogUniform(0.005, 0.1),
        "alpha": LogUniform(0.5, 8.0),
        "b": LogUniform(0.5, 8.0),
    },
    exempt={"large static shapes": "many positives are listed, each to be compared with all references"},
)
def pnp(
    pairs: Pairs,
    *,
    variant: Literal["O", "Iu", "Ib", "Ds", "Dq"] = "O",
    tau: PositiveFloat = 0.01,
    alpha: PositiveFloat = 1.0,
    b: PositiveFloat = 2.0,
    include_query: bool = False,
) -> Tensor:
    """Penalize a function of the soft number of negatives ranked before each positive.

    L = mean_q 1/|P_q| Σ_{i∈P_q} f(R_i), R_i = Σ_{n∈N_q} σ((s_qn − s_qi)/τ), over queries with positives. Variants: 'O'
    f = R; 'Iu' (1 + R) log(1 + R) and 'Ib' (bR − log(1 + bR))/b², whose derivative grows with R; 'Ds' log(1 + R) and
    'Dq' 1 − (1 + R)^{−α}, whose derivative falls. `include_query` counts the query, at its similarity to itself,
    among its own positives, as the authors' code does.
    """
    penalties: dict[str, Callable[[Tensor], Tensor]] = {
        "O": lambda rank: rank,
        "Iu": lambda rank: (1 + rank) * rank.log1p(),
        "Ib": lambda rank: (b * rank - (b * rank).log1p()) / b**2,
        "Ds": torch.log1p,
        "Dq": lambda rank: 1 - (1 + rank) ** -alpha,
    }
    valid = ops.has_any(pairs.positive)
    if include_query:
        pairs = pairs.add_query(pairs.self_similarity(), positive=True)
    logits, positive = pairs.similarity / tau, ops.special.list_positives(pairs)
    positive_logits = positive.gather(logits)
    total = logits.sum(1) * 0
    for part, part_logits in positive.split(positive_logits):
        penalty = penalties[variant](soft_rank(part_logits, logits, pairs.negative, pairs.weight))
        total = total + ops.row_sum(penalty, part.mask, part.weight)
    num_positives = ops.row_sum(torch.ones_like(positive_logits), positive.mask, positive.weight)
    return ops.mean(ops.divide(total, num_positives), valid)
