"""What a few losses demand of their pairs beyond similarity and masks; not a loss of its own."""

import torch

from equimetric.errors import EquimetricError
from equimetric.pairs import Pairs, Queries

__all__ = ["check_square_batch", "known_queries"]


def known_queries(pairs: Pairs, loss: str) -> Queries:
    """The queries, for losses that look at the embeddings or labels themselves."""
    if pairs.queries is None:
        raise EquimetricError(f"loss {loss!r} needs pairs that know their queries; make them with an objective")
    return pairs.queries


def check_square_batch(pairs: Pairs, loss: str) -> None:
    """Refuse references other than the batch itself: column j must be the same sample as row j.

    A sample and itself are never a pair, so a pair on the diagonal gives away an equally large set of other samples.
    A compiled graph cannot branch on data; there only the shape is checked.
    """
    queries, references = pairs.similarity.shape
    square = queries == references
    if square and not torch.compiler.is_compiling():
        square = not bool(pairs.any.diagonal().any())
    if not square:
        raise EquimetricError(
            f"loss {loss!r} compares the samples of a batch among themselves; give no reference_embeddings, "
            "or the batch itself with its diagonal as self_mask"
        )
