"""Shared by losses of ensembles, whose embedding is that of its members, one after the other; not a loss itself."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from equimetric.errors import EquimetricError

EXEMPT = {
    "monotone": "compares the embeddings of each member, not those of the whole",
    "multiplicity": "compares the embeddings of each member, not the references of the whole",
}
"""Laws about pairs of whole embeddings, which these losses do not look at."""


def equal_sizes(dim: int, members: int, loss: str) -> list[int]:
    """Dimensions of the members of an embedding, as equal as possible."""
    return proportional_sizes(dim, [1] * members, loss)


def proportional_sizes(dim: int, weights: Sequence[float], loss: str) -> list[int]:
    """Dimensions of the members of an embedding, integers in about this proportion."""
    ends = [round(dim * cumulative / sum(weights)) for cumulative in accumulate(weights)]
    sizes = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    if min(sizes) < 1:
        raise EquimetricError(f"{len(weights)} members of loss {loss!r} cannot share an embedding of dimension {dim}")
    return sizes


def member_slices(embeddings: Tensor, sizes: Sequence[int], loss: str) -> tuple[Tensor, ...]:
    """(B, D_m) the embedding of each member, as the network gave it."""
    if embeddings.shape[1] != sum(sizes):
        raise EquimetricError(
            f"embeddings have dimension {embeddings.shape[1]}, but the members of {loss!r} have "
            f"{' + '.join(map(str, sizes))} = {sum(sizes)}"
        )
    return torch.split(embeddings, list(sizes), dim=1)
