"""Several representatives per class: one similarity from many, and how far the representatives lie apart."""

from torch import Tensor

from equimetric.errors import unknown_name

__all__ = ["centre_spread", "check_pool", "pool_centres"]

POOLS = ("max", "soft")
DIVISORS = ("ordered", "unordered")


def check_pool(pool: str, divisor: str) -> None:
    """Refuse names that are not known."""
    if pool not in POOLS:
        raise unknown_name("pool", pool, POOLS)
    if divisor not in DIVISORS:
        raise unknown_name("divisor", divisor, DIVISORS)


def pool_centres(similarity: Tensor, per_class: int, pool: str, gamma: float) -> Tensor:
    """(B, C·K) similarities, class by class, to (B, C).

    'max': the nearest centre alone, S_c = max_k s_ck; 'soft': S_c = Σ_k q_k s_ck with q = softmax_k(s_ck / γ).
    """
    if per_class == 1:
        return similarity
    by_class = similarity.view(len(similarity), -1, per_class)
    if pool == "max":
        # The gradient of `max` goes to one centre, also among equals; that of `amax` would be shared.
        return by_class.max(dim=2).values
    return ((by_class / gamma).softmax(dim=2) * by_class).sum(dim=2)


def centre_spread(centres: Tensor, divisor: str) -> Tensor:
    """R = Σ_c Σ_{t<s} √(2 + 1e-5 − 2 w_ct·w_cs) / divisor of (C, K, D) unit centres; 0 for K = 1.

    The divisor is C·K·(K − 1) ('ordered' pairs, though each is summed once) or half of it ('unordered': the mean).
    The 1e-5 keeps the slope finite where two centres of a class coincide.
    """
    classes, per_class, _ = centres.shape
    cosine = centres @ centres.transpose(1, 2)
    pairs = classes * per_class * (per_class - 1) / (1 if divisor == "ordered" else 2)
    return (2 + 1e-5 - 2 * cosine).clamp_min(1e-5).sqrt().triu(1).sum() / max(pairs, 1)
