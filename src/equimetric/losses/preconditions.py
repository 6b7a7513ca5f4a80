"""What a few losses demand of their pairs beyond similarity and masks; not a loss of its own."""

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.pairs import Pairs, Queries

__all__ = [
    "check_dimension",
    "check_finite",
    "check_square_batch",
    "class_labels",
    "is_square_batch",
    "known_queries",
    "whole_batch",
]


def known_queries(pairs: Pairs, loss: str) -> Queries:
    """The queries, for losses that look at the embeddings or labels themselves."""
    if pairs.queries is None:
        raise EquimetricError(f"loss {loss!r} needs pairs that know their queries; make them with an objective")
    return pairs.queries


def is_square_batch(pairs: Pairs) -> bool:
    """Whether the references are the batch itself: column j the same sample as row j.

    A sample and itself are never a pair, so a pair on the diagonal gives away an equally large set of other samples.
    A compiled graph cannot branch on data; there only the shape is checked.
    """
    queries, references = pairs.similarity.shape
    if queries != references or torch.compiler.is_compiling():
        return queries == references
    return not bool((pairs.positive.diagonal() | pairs.negative.diagonal()).any())


def check_square_batch(pairs: Pairs, loss: str) -> None:
    """Refuse references other than the batch itself."""
    if not is_square_batch(pairs):
        raise EquimetricError(
            f"loss {loss!r} compares the samples of a batch among themselves; give no reference_embeddings, "
            "or the batch itself with its diagonal as self_mask"
        )


def batch_embeddings(pairs: Pairs, loss: str) -> Tensor:
    """(B, D) embeddings of a batch compared with itself, of all pairs once; whatever its labels."""
    check_square_batch(pairs, loss)
    if pairs.weight is not None:
        raise EquimetricError(f"loss {loss!r} compares the batch as a whole; use it with selection='all'")
    return known_queries(pairs, loss).embeddings


def check_dimension(embeddings: Tensor, dim: int, loss: str) -> None:
    """Refuse embeddings of another dimension than the loss was made for."""
    if embeddings.shape[1] != dim:
        raise EquimetricError(
            f"embeddings have dimension {embeddings.shape[1]}, but {loss} was made for {dim}; give dim=…"
        )


def check_finite(values: Tensor, loss: str) -> None:
    """Refuse embeddings or distances of which no clustering can be made."""
    if not torch.compiler.is_compiling() and not values.isfinite().all():
        raise EquimetricError(
            f"embeddings hold NaN or infinite numbers, of which loss {loss!r} can make nothing; "
            "the network has diverged: lower its learning rate"
        )


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
