"""Requirements of a loss on its pairs beyond similarity and masks; a missing part raises an error that names it."""

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.pairs import Pairs, Queries

__all__ = [
    "batch_embeddings",
    "class_labels",
    "finite",
    "is_square_batch",
    "queries",
    "rows_of_training_set",
    "square_batch",
    "whole_batch",
]

WHOLE_BATCH_REMEDY = "use it with selection='all' and, if any, one weight for each sample"


def queries(pairs: Pairs, loss: str) -> Queries:
    """The queries, for losses that need the embeddings or labels themselves."""
    if pairs.queries is None:
        raise EquimetricError(f"loss {loss!r} needs pairs that know their queries; make them with an objective")
    return pairs.queries


def is_square_batch(pairs: Pairs) -> bool:
    """Whether the references are the batch itself: column j the same sample as row j.

    A sample and itself are never a pair, so a pair on the diagonal reveals an equally large set of other samples.
    A compiled graph cannot branch on data; there only the shape is checked.
    """
    rows, columns = pairs.similarity.shape
    if rows != columns or torch.compiler.is_compiling():
        return rows == columns
    return not bool((pairs.positive.diagonal() | pairs.negative.diagonal()).any())


def square_batch(pairs: Pairs, loss: str, option: str = "") -> None:
    """Require references that are the batch itself; `option` names the option that needs it, where only one does."""
    if not is_square_batch(pairs):
        subject = f"loss {loss!r} with {option}" if option else f"loss {loss!r}"
        raise EquimetricError(
            f"{subject} compares the samples of a batch among themselves; give no reference_embeddings, "
            "or the batch itself with its diagonal as self_mask"
        )


def batch_embeddings(pairs: Pairs, loss: str, dim: int | None = None) -> Tensor:
    """(B, D) embeddings of a batch compared with itself, every pair present; of dimension `dim` if given."""
    square_batch(pairs, loss)
    if not has_sample_weights_only(pairs):
        raise EquimetricError(f"loss {loss!r} compares the batch as a whole; {WHOLE_BATCH_REMEDY}")
    return dimension(queries(pairs, loss).embeddings, dim, loss)


def has_sample_weights_only(pairs: Pairs) -> bool:
    """Whether the weight of a pair is that of its two samples alone, not the choice of a selection.

    A compiled graph cannot branch on data; there only the presence of weights is checked.
    """
    query_weight = pairs.query_weight
    if query_weight is None or pairs.weight is None or torch.compiler.is_compiling():
        return (query_weight is None) == (pairs.weight is None)
    return torch.equal(pairs.weight, query_weight.expand_as(pairs.weight))


def dimension(embeddings: Tensor, dim: int | None, loss: str) -> Tensor:
    """Return the embeddings, which must have dimension `dim` if given."""
    if dim is not None and embeddings.shape[1] != dim:
        raise EquimetricError(
            f"embeddings have dimension {embeddings.shape[1]}, but {loss} was made for {dim}; give dim=…"
        )
    return embeddings


def finite(values: Tensor, loss: str) -> None:
    """Require embeddings or distances without NaN or infinity."""
    if not torch.compiler.is_compiling() and not values.isfinite().all():
        raise EquimetricError(
            f"embeddings hold NaN or infinite numbers, which loss {loss!r} cannot cluster; "
            "the network has diverged: lower its learning rate"
        )


def class_labels(pairs: Pairs, loss: str, classes: int | None = None) -> Tensor:
    """(Q,) the class id of each query, in 0 … classes − 1 if `classes` is given."""
    labels = queries(pairs, loss).labels
    if labels is None or labels.ndim != 1:
        raise EquimetricError(f"loss {loss!r} needs one class id per sample as labels")
    if classes is not None and len(labels) and not torch.compiler.is_compiling():
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= classes:
            raise EquimetricError(
                f"labels must be class ids 0 … {classes - 1} for classes={classes}, got {low} … {high}"
            )
    return labels


def rows_of_training_set(pairs: Pairs, loss: str, images: int, kept: str = "the clusters") -> Tensor:
    """(Q,) the position of each query in a training set of `images`, for which the loss stores `kept`."""
    index = queries(pairs, loss).index
    if index is None or (len(index) and not 0 <= int(index.min()) <= int(index.max()) < images):
        raise EquimetricError(
            f"{loss} keeps {kept} of {images} images; it needs index=… with every sample's place among them"
        )
    return index


def whole_batch(pairs: Pairs, loss: str, dim: int | None = None) -> tuple[Tensor, Tensor]:
    """(B, D) embeddings and (B,) labels of a batch compared with itself, every pair of present samples among its pairs.

    Copies of a sample need not be pairs of one another. A compiled graph cannot branch on data; there the masks are
    not checked.
    """
    square_batch(pairs, loss)
    labels, embeddings = class_labels(pairs, loss), queries(pairs, loss).embeddings
    complete = has_sample_weights_only(pairs)
    if complete and not torch.compiler.is_compiling():
        same = labels[:, None] == labels[None, :]
        positive, negative = same.clone().fill_diagonal_(False), ~same
        if pairs.query_weight is not None:
            present = pairs.query_weight > 0
            both = present[:, None] & present
            positive, negative = positive & both, negative & both
        complete = torch.equal(pairs.negative, negative)
        if complete and not torch.equal(pairs.positive, positive):
            complete = torch.equal(*embeddings.detach()[(pairs.positive != positive).nonzero().T])
    if not complete:
        raise EquimetricError(f"loss {loss!r} scores the batch as a whole; {WHOLE_BATCH_REMEDY}")
    return dimension(embeddings, dim, loss), labels
