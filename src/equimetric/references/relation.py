"""From labels to masks: which pairs are positive, which negative.

Labels come in three forms: one class id per sample; a multi-hot matrix (samples, labels), where two samples are a
positive pair if they share at least one label; or the relation itself, two boolean masks (positive, negative) of shape
(queries, references).
"""

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, not_a_tensor

__all__ = ["Labels", "check_class_ids", "check_embeddings", "check_index", "check_labels", "class_ids", "label_masks"]

Labels = Tensor | tuple[Tensor, Tensor]
"""Class ids, a multi-hot matrix, or the masks (positive, negative)."""

OTHER_LABELS = "multi-hot labels and masks of pairs need references='batch' and a loss that takes them"

MIN_PAIRS_BY_CLASS = 2**18
"""From this number of pairs on, comparing each class once is faster than comparing every two labels."""


def check_embeddings(embeddings: Tensor, name: str = "embeddings") -> Tensor:
    """Embeddings as a float32 or float64 matrix: half precision is too coarse for similarities."""
    if not isinstance(embeddings, Tensor):
        raise not_a_tensor(embeddings, name)
    if embeddings.ndim != 2:
        raise EquimetricError(f"{name} must be a matrix of shape (samples, dimension), got {tuple(embeddings.shape)}")
    if not embeddings.is_floating_point():
        raise EquimetricError(f"{name} must be floating point, got {embeddings.dtype}")
    return embeddings if embeddings.dtype in (torch.float32, torch.float64) else embeddings.float()


def check_class_ids(labels: Labels, embeddings: Tensor, name: str = "labels") -> Tensor:
    """Labels as int64, one per embedding, on the same device; class ids may be any whole numbers."""
    if isinstance(labels, tuple):
        raise EquimetricError(f"{name} must be one class id per embedding here; {OTHER_LABELS}")
    if not isinstance(labels, Tensor):
        raise not_a_tensor(labels, name)
    if labels.ndim != 1 or labels.shape[0] != embeddings.shape[0]:
        raise EquimetricError(
            f"{name} must be one class id per embedding: got shape {tuple(labels.shape)} "
            f"for {len(embeddings)} embeddings{explain_shape(labels, name)}"
        )
    if labels.dtype == torch.bool:
        raise EquimetricError(f"{name} must be whole numbers, got torch.bool; convert two classes with {name}.long()")
    if labels.is_floating_point() or labels.is_complex():
        raise EquimetricError(
            f"{name} must be whole numbers, got {labels.dtype}: floating point cannot tell large class ids apart; "
            f"convert with {name}.long()"
        )
    return labels.to(embeddings.device, torch.int64)


def explain_shape(labels: Tensor, name: str) -> str:
    """The end of the error for labels in a matrix."""
    if labels.ndim != 2:
        return ""
    return f"; give {name}.squeeze(1)" if labels.shape[1] == 1 else f"; {OTHER_LABELS}"


def check_index(index: Tensor | None, embeddings: Tensor) -> None:
    """Raise an error unless the index has one training-set position for each embedding."""
    if index is None:
        return
    if not isinstance(index, Tensor):
        raise not_a_tensor(index, "index")
    if index.shape != embeddings.shape[:1] or index.is_floating_point() or index.dtype == torch.bool:
        raise EquimetricError(
            f"index must give each of the {len(embeddings)} embeddings its position in the training set, a whole "
            f"number; got {index.dtype} {tuple(index.shape)}"
        )


def check_labels(labels: Labels, embeddings: Tensor, name: str = "labels") -> Labels:
    """Class ids as int64, a multi-hot matrix as bool, or the two masks as they are, on the embeddings' device."""
    if isinstance(labels, tuple):
        if len(labels) != 2:
            raise EquimetricError(
                f"{name} given as masks must be the pair (positive, negative), got {len(labels)} parts"
            )
        return labels[0].to(embeddings.device), labels[1].to(embeddings.device)
    if not isinstance(labels, Tensor):
        raise not_a_tensor(labels, name)
    if labels.ndim != 2 or labels.shape[1] == 1:
        return check_class_ids(labels, embeddings, name)
    if len(labels) != len(embeddings):
        raise EquimetricError(
            f"a multi-hot matrix of {name} needs one row per embedding: got {len(labels)} rows "
            f"for {len(embeddings)} embeddings"
        )
    if not ((labels == 0) | (labels == 1)).all():
        raise EquimetricError(f"a multi-hot matrix of {name} must hold only 0 and 1; give class ids as a vector")
    return labels.to(embeddings.device, torch.bool)


def class_ids(labels: Labels) -> Tensor | None:
    """Return the labels if they are class ids, else None."""
    return labels if isinstance(labels, Tensor) and labels.ndim == 1 else None


def label_masks(
    labels: Labels,
    reference_labels: Labels | None,
    shape: tuple[int, int],
    self_mask: Tensor | None = None,
    *,
    same_set: bool = False,
) -> tuple[Tensor, Tensor]:
    """Masks of positive and negative pairs, of this shape; pairs that `self_mask` marks are neither.

    Labels given as masks are the relation itself and take no reference labels. With `same_set` the references are the
    queries, in the same order, and the diagonal is neither.
    """
    positive, negative = (
        check_masks(labels, shape) if isinstance(labels, tuple) else match_labels(labels, reference_labels)
    )
    if same_set:
        # With class ids a sample matches itself; a multi-hot row without any label does not.
        if class_ids(labels) is None:
            negative.fill_diagonal_(False)
        return positive.fill_diagonal_(False), negative
    if self_mask is None:
        return positive, negative
    if self_mask.shape != shape or self_mask.dtype != torch.bool:
        raise EquimetricError(
            f"self_mask must be a bool matrix of shape {shape}, got {self_mask.dtype} {tuple(self_mask.shape)}"
        )
    not_self = ~self_mask.to(positive.device)
    return positive & not_self, negative & not_self


def check_masks(masks: tuple[Tensor, Tensor], shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Copy the masks (positive, negative), which must fit the pairs and exclude one another."""
    for name, mask in zip(("positive", "negative"), masks, strict=True):
        if mask.shape != shape or mask.dtype != torch.bool:
            raise EquimetricError(
                f"the {name} mask must be a bool matrix of shape {shape} (queries, references), "
                f"got {mask.dtype} {tuple(mask.shape)}"
            )
    if (masks[0] & masks[1]).any():
        raise EquimetricError("a pair cannot be positive and negative; the two masks must not overlap")
    return masks[0].clone(), masks[1].clone()


def same_class(labels: Tensor, reference_labels: Tensor) -> Tensor:
    """(Q, R) bool: equal class ids. In large batches each class is compared once and its row copied."""
    if labels.shape[0] * reference_labels.shape[0] < MIN_PAIRS_BY_CLASS or torch.compiler.is_compiling():
        return labels[:, None] == reference_labels
    classes, inverse = torch.unique(labels, return_inverse=True)
    same: Tensor = (classes[:, None] == reference_labels)[inverse]
    return same


def match_labels(labels: Tensor, reference_labels: Labels | None) -> tuple[Tensor, Tensor]:
    """Pairs with the same class id or with a label in common, and all others."""
    if not isinstance(reference_labels, Tensor) or reference_labels.ndim != labels.ndim:
        raise EquimetricError("labels and reference_labels must be of one kind, both class ids or both multi-hot")
    if labels.ndim == 1:
        same = same_class(labels, reference_labels)
    elif labels.shape[1] != reference_labels.shape[1]:
        raise EquimetricError(
            f"multi-hot labels have {labels.shape[1]} columns, reference_labels {reference_labels.shape[1]}; "
            "they must be equal"
        )
    else:
        same = labels.float() @ reference_labels.float().T > 0
    return same, ~same
