"""Angular loss over all negatives, in N-pair form, and joined with the N-pairs loss."""

from dataclasses import replace
from math import radians, tan

from torch import Tensor
from torch.nn.functional import softplus

from equimetric.components import loss
from equimetric.geometry import unit
from equimetric.losses.npairs import first_pairs, npairs
from equimetric.losses.preconditions import check_square_batch, known_queries
from equimetric.ops.masks import has_any
from equimetric.ops.reductions import added, count, log1p_sum_exp, log_sum_exp, masked_sum, mean_valid, ratio
from equimetric.option_values import Acute, NotNegative
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

__all__ = ["angular", "angular_npair", "angular_npairs_combo"]

PAPER = "Wang, Zhou, Wen, Liu, Lin: Deep metric learning with angular loss (2017)"
SEARCH = {"alpha_deg": Uniform(36.0, 55.0)}


def coefficients(alpha_deg: float) -> tuple[float, float]:
    """4 tan²α and 2(1 + tan²α), the pulls of negatives and of the positive in f_apn."""
    squared = tan(radians(alpha_deg)) ** 2
    return 4 * squared, 2 * (1 + squared)


@loss("angular", title="Angular", family="ranking", paper=PAPER, references="batch", search=SEARCH)
def angular(pairs: Pairs, *, alpha_deg: Acute = 45.0) -> Tensor:
    """Bound the angle at the negative of the triangle of anchor, positive and negative.

    L = mean_{(a,p)} log(1 + Σ_{n∈N_a} e^{f_apn}), f_apn = 4 tan²α (x_a + x_p)·x_n − 2(1 + tan²α) x_a·x_p.
    """
    check_square_batch(pairs, "angular")
    push, pull = coefficients(alpha_deg)
    similarity, weight = pairs.similarity, pairs.weight
    has_negatives = has_any(pairs.negative)
    values, numbers = [], []
    for columns, is_positive in pairs.slot_groups(pairs.positive_columns()):
        compared = is_positive & has_negatives[:, None]
        multiplicity = None if weight is None else weight.gather(1, columns)
        both_ends = push * (similarity[:, None] + similarity[columns])
        share = None if weight is None else weight[:, None].expand_as(both_ends)
        negatives = log_sum_exp(both_ends, pairs.negative[:, None].expand_as(both_ends), share)
        values.append(masked_sum(softplus(negatives - pull * similarity.gather(1, columns)), compared, multiplicity))
        numbers.append(count(compared, multiplicity, similarity.dtype))
    return ratio(added(values), added(numbers))


@loss(
    "angular_npair",
    title="Angular (N-pair)",
    family="ranking",
    paper=PAPER,
    references="batch",
    takes="batch",
    search=SEARCH,
)
def angular_npair(pairs: Pairs, *, alpha_deg: Acute = 45.0) -> Tensor:
    """Angular loss with one pair per class, whose negatives are the positives of the other classes.

    L = 1/N Σ_i log(1 + Σ_{j≠i} e^{f_ij}), f_ij = 4 tan²α (a_i + p_i)·p_j − 2(1 + tan²α) a_i·p_i, (a_i, p_i) the first
    two rows of each of the N classes that have two.
    """
    references = known_queries(pairs, "angular_npair").references
    if references is None:
        check_square_batch(pairs, "angular_npair")
    push, pull = coefficients(alpha_deg)
    chosen = first_pairs(pairs, "angular_npair")
    of_anchors = chosen.logits(pairs.similarity)
    among_references = pairs.similarity if references is None else references @ references.T
    of_positives = chosen._replace(anchor=chosen.positive).logits(among_references)
    angle = push * (of_anchors + of_positives) - pull * of_anchors.diagonal()[:, None]
    return mean_valid(log1p_sum_exp(angle, chosen.competes), chosen.present)


@loss(
    "angular_npairs_combo",
    title="N-pairs + angular",
    family="ranking",
    paper=PAPER,
    geometry="dot",
    references="batch",
    takes="batch",
    search={**SEARCH, "l2_reg": Uniform(0.0, 0.02)},
)
def angular_npairs_combo(
    pairs: Pairs, *, alpha_deg: Acute = 45.0, lam: float = 2.0, l2_reg: NotNegative = 0.002, symmetric: bool = False
) -> Tensor:
    """N-pairs loss of the raw embeddings and angular loss of the same pairs at unit length.

    L = L_npairs + λ L_angular, λ = `lam`
    """
    queries = known_queries(pairs, "angular_npairs_combo")
    embeddings = unit(queries.embeddings)
    references = embeddings if queries.references is None else unit(queries.references)
    normalised = Pairs(
        embeddings @ references.T,
        pairs.positive,
        pairs.negative,
        pairs.weight,
        queries=replace(queries, embeddings=embeddings, references=None if references is embeddings else references),
    )
    value = npairs(pairs, l2_reg=l2_reg, symmetric=symmetric)
    return value + lam * angular_npair(normalised, alpha_deg=alpha_deg)
