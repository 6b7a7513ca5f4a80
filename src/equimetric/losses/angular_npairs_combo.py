"""Angular loss together with the N-pairs loss."""

from dataclasses import replace

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.losses.angular_npair import angular_npair
from equimetric.losses.npairs import EXEMPT, npairs
from equimetric.option_values import Acute, NonNegativeFloat, RowReduction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "angular_npairs_combo",
    title="N-pairs + angular",
    family="ranking",
    per_query=True,
    paper="Wang, Zhou, Wen, Liu, Lin: Deep metric learning with angular loss (2017)",
    geometry="dot",
    references="batch",
    takes="batch",
    search={"alpha_deg": Uniform(36.0, 55.0), "l2_reg": Uniform(0.0, 0.02)},
    exempt=EXEMPT,
)
def angular_npairs_combo(
    pairs: Pairs,
    *,
    alpha_deg: Acute = 45.0,
    lam: float = 2.0,
    l2_reg: NonNegativeFloat = 0.002,
    symmetric: bool = False,
    reduction: RowReduction = "mean",
) -> Tensor:
    """N-pairs loss of the raw embeddings and angular loss of the same pairs at unit length.

    L = L_npairs + λ L_angular, λ = `lam`
    """
    queries = ops.require.queries(pairs, "angular_npairs_combo")
    embeddings = ops.unit(queries.embeddings)
    references = None if queries.references is None else ops.unit(queries.references)
    normalized = Pairs(
        embeddings @ (embeddings if references is None else references).T,
        pairs.positive,
        pairs.negative,
        pairs.weight,
        queries=replace(queries, embeddings=embeddings, references=references),
    )
    value = npairs(pairs, l2_reg=l2_reg, symmetric=symmetric, reduction=reduction)
    return value + lam * angular_npair(normalized, alpha_deg=alpha_deg, reduction=reduction)
