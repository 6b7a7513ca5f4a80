"""For losses that score a batch as a whole, not pair by pair; not a loss of its own."""

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.losses.preconditions import check_square_batch, known_queries
from equimetric.pairs import Pairs

__all__ = ["class_labels", "whole_batch"]


def class_labels(pairs: Pairs, loss: str) -> Tensor:
    """(Q,) the class of each query."""
    labels = known_queries(pairs, loss).labels
    if labels is None or labels.ndim != 1:
        raise EquimetricError(f"loss {loss!r} needs one class id per sample as labels")
    return labels


def whole_batch(pairs: Pairs, loss: str) -> tuple[Tensor, Tensor]:
    """(B, D) embeddings and (B,) labels of a batch compared with itself, every pair present once.

    A compiled graph cannot branch on data; there the masks are not checked.
    """
    check_square_batch(pairs, loss)
    labels = class_labels(pairs, loss)
    complete = pairs.weight is None
    if complete and not torch.compiler.is_compiling():
        same = labels[:, None] == labels[None, :]
        complete = torch.equal(pairs.negative, ~same) and torch.equal(pairs.positive, same.fill_diagonal_(False))
    if not complete:
        raise EquimetricError(f"loss {loss!r} scores the batch as a whole; use it with selection='all'")
    return known_queries(pairs, loss).embeddings, labels
