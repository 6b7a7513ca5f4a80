"""The cross-entropy that classification losses share, and the margin that they give the right class."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.ops.exponentials import log_sum_exp
from equimetric.ops.masks import has_any
from equimetric.ops.reductions import mean, reduce_rows, row_mean
from equimetric.pairs import Pairs

__all__ = ["collect_logits", "cosine_and_norm", "cross_entropy", "pair_cross_entropy", "replace_positives"]

_collected: ContextVar[list[Tensor] | None] = ContextVar("collected", default=None)


@contextmanager
def collect_logits() -> Iterator[list[Tensor]]:
    """Keep the logits of every cross-entropy inside the block."""
    found: list[Tensor] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def replace_positives(values: Tensor, pairs: Pairs, change: Callable[[Tensor], Tensor]) -> Tensor:
    """(Q, R) values with those of the positives replaced by `change(values)`: a margin for the right class.

    Where each query has just one positive, nothing else is computed.
    """
    if pairs.target is None:
        return torch.where(pairs.positive, change(values), values)
    column = pairs.target[:, None]
    return values.scatter(1, column, change(values.gather(1, column)))


def cosine_and_norm(pairs: Pairs, loss: str) -> tuple[Tensor, Tensor]:
    """(Q, R) cosines and (Q, 1) norms of queries that are compared raw, by dot product, with unit class weights."""
    queries = pairs.queries
    if queries is None or not isinstance(queries.target_length, float):
        raise EquimetricError(
            f"loss {loss!r} reads a margin from the length of each embedding and compares by angle; "
            "use references='proxies' with normalize_proxies=True and without a bias"
        )
    norm: Tensor = torch.linalg.vector_norm(queries.embeddings, dim=1, keepdim=True)
    return pairs.similarity / torch.threshold(norm, 1e-12, 1.0), norm


def cross_entropy(
    logits: Tensor,
    pairs: Pairs,
    label_smoothing: float = 0.0,
    smoothing: str = "others",
    reduction: str = "mean",
    *,
    positive_in_denominator: bool = True,
) -> Tensor:
    """Mean over queries of −log of the positive references' share of Σ e^{logits}.

    With smoothing ε the target is 1 − ε and the others share ε ('others': each of the C − 1 others ε/(C − 1)), or
    all C classes share it ('uniform': target 1 − ε + ε/C, each other ε/C, the convention of torch).
    `positive_in_denominator=False` sums the denominator over the negatives alone.
    """
    if smoothing not in ("others", "uniform"):
        raise unknown_name("smoothing", smoothing, ("others", "uniform"))
    # A compiled graph reads no context variables.
    if not torch.compiler.is_compiling() and (collected := _collected.get()) is not None:
        collected.append(logits)
    if pairs.target is not None and positive_in_denominator and not label_smoothing:
        # Every row is one label among all classes, which torch computes in two calls.
        values = torch.nn.functional.cross_entropy(logits, pairs.target, reduction="none")
        return reduce_rows(values, None, reduction)
    denominator = log_sum_exp(logits, pairs.mask if positive_in_denominator else pairs.negative, pairs.weight)
    values = denominator - log_sum_exp(logits, pairs.positive, pairs.weight)
    if label_smoothing:
        smoothed = pairs.negative if smoothing == "others" else pairs.mask
        smoothing_loss = denominator - row_mean(logits, smoothed, pairs.weight)
        values = (1 - label_smoothing) * values + label_smoothing * smoothing_loss
    return reduce_rows(values, has_any(pairs.positive) & has_any(pairs.negative), reduction)


def pair_cross_entropy(logits: Tensor, pairs: Pairs) -> Tensor:
    """Mean over positive pairs of log(1 + Σ_{n∈N_a} e^{z_an − z_ap}) = softplus(log Σ_n e^{z_an} − z_ap).

    One log-sum-exp per anchor serves all its positives; anchors without negatives are left out.
    """
    negatives = log_sum_exp(logits, pairs.negative, pairs.weight)[:, None]
    compared = pairs.positive & pairs.negative.any(1, keepdim=True)
    return mean(torch.nn.functional.softplus(negatives - logits), compared, pairs.weight)
