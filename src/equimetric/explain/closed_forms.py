"""Pair weights in closed form, per anchor, as in the literature: for reading, and as a check on `pair_weights`.

n_P and n_N are the sizes of an anchor's positive and negative sets; a selection sets the weight of dropped pairs to 0.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from equimetric.ops import log_sum_exp
from equimetric.pairs import Pairs

__all__ = ["CLOSED_FORMS"]


def two_sided(pairs: Pairs, positive: Tensor, negative: Tensor) -> Tensor:
    """One weight for the positive pairs, another for the negative ones, 0 for the rest."""
    zeros = torch.zeros_like(pairs.similarity)
    return torch.where(pairs.positive, positive, torch.where(pairs.negative, negative, zeros))


def contrastive_cosine(pairs: Pairs, *, lam: float = 0.5) -> Tensor:
    """1 for positives, 1[s > λ] for negatives."""
    return two_sided(pairs, torch.ones_like(pairs.similarity), (pairs.similarity > lam).to(pairs.similarity))


def triplet(pairs: Pairs, *, margin: float = 0.05) -> Tensor:
    """All triples, mean over T of them: (B/T)·#{n: s_n − s_j + m > 0} and (B/T)·#{p: s_k − s_p + m > 0}."""
    similarity, positive, negative = pairs.similarity, pairs.positive, pairs.negative
    violation = similarity[:, None, :] - similarity[:, :, None]
    active = (violation + margin > 0) & positive[:, :, None] & negative[:, None, :]
    triples = (positive.sum(1) * negative.sum(1)).sum().clamp_min(1).to(similarity)
    scale = len(similarity) / triples
    return two_sided(pairs, scale * active.sum(2), scale * active.sum(1))


def lifted_generalized(pairs: Pairs, *, margin: float = 1.0) -> Tensor:
    """e^{−s_j}/Σ_P e^{−s} and e^{s_k}/Σ_N e^{s}, for anchors whose loss is above zero."""
    similarity = pairs.similarity
    pull = log_sum_exp(-similarity, pairs.positive)
    push = log_sum_exp(similarity, pairs.negative)
    active = (pull + push + margin > 0)[:, None]
    weights = two_sided(pairs, (-similarity - pull[:, None]).exp(), (similarity - push[:, None]).exp())
    return torch.where(active, weights, torch.zeros_like(weights))


def binomial(pairs: Pairs, *, alpha: float = 2.0, beta: float = 50.0, gamma: float = 0.5) -> Tensor:
    """(α/n_P) σ(α(γ − s)) and (β/n_N) σ(β(s − γ))."""
    similarity = pairs.similarity
    positives = pairs.positive.sum(1, keepdim=True).clamp_min(1).to(similarity)
    negatives = pairs.negative.sum(1, keepdim=True).clamp_min(1).to(similarity)
    pull = alpha / positives * torch.sigmoid(alpha * (gamma - similarity))
    return two_sided(pairs, pull, beta / negatives * torch.sigmoid(beta * (similarity - gamma)))


def multi_similarity(pairs: Pairs, *, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5) -> Tensor:
    """1/(Σ_{q∈P} e^{α(s_j − s_q)} + e^{α(s_j − base)}) and 1/(Σ_{q∈N} e^{−β(s_k − s_q)} + e^{−β(s_k − base)})."""
    similarity = pairs.similarity

    def share(exponent: Tensor, mask: Tensor) -> Tensor:
        log_total = log_sum_exp(exponent, mask)
        return (exponent - torch.logaddexp(log_total, torch.zeros_like(log_total))[:, None]).exp()

    return two_sided(
        pairs, share(alpha * (base - similarity), pairs.positive), share(beta * (similarity - base), pairs.negative)
    )


def equal_weights(pairs: Pairs) -> Tensor:
    """1/n_P and 1/n_N."""
    similarity = pairs.similarity
    positives = pairs.positive.sum(1, keepdim=True).clamp_min(1).to(similarity)
    negatives = pairs.negative.sum(1, keepdim=True).clamp_min(1).to(similarity)
    return two_sided(pairs, (1 / positives).expand_as(similarity), (1 / negatives).expand_as(similarity))


def ntxent(pairs: Pairs, *, temperature: float = 0.07) -> Tensor:
    """(1/τ)(1 − softmax_p) and (1/τ) Σ_p softmax_n, times B over the number of positive pairs."""
    logits = pairs.similarity / temperature
    log_total = torch.logaddexp(logits, log_sum_exp(logits, pairs.negative)[:, None])
    probs = (logits - log_total).exp()
    has_negative = pairs.negative.any(1, keepdim=True)
    valid = pairs.positive & has_negative
    scale = len(logits) / valid.sum().clamp_min(1).to(logits) / temperature
    # Each positive p of the anchor has a softmax of its own over itself and the negatives.
    push = (logits[:, :, None] - log_total[:, None, :]).exp()
    push = torch.where(valid[:, None, :], push, torch.zeros_like(push)).sum(2)
    return two_sided(pairs, scale * torch.where(valid, 1 - probs, torch.zeros_like(probs)), scale * push)


CLOSED_FORMS: dict[str, Callable[..., Tensor]] = {
    "contrastive_cosine": contrastive_cosine,
    "triplet": triplet,
    "lifted_generalized": lifted_generalized,
    "binomial": binomial,
    "multi_similarity": multi_similarity,
    "raw": multi_similarity,
    "equal_weights": equal_weights,
    "ntxent": ntxent,
}
"""Loss → its weights; `triplet` and `lifted_generalized` in the cosine geometry, `triplet` with reduction='mean'."""
