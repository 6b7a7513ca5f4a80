"""What the user gave, checked and brought into one form: finite embeddings and numbered classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.exact import slices

__all__ = ["GivenEmbeddings", "GivenLabels", "LabelledSets", "as_embeddings", "as_labels", "labelled_sets"]

GivenEmbeddings = Tensor | NDArray[Any]
GivenLabels = Tensor | NDArray[Any] | Sequence[int] | Sequence[str]
Labels = NDArray[np.int64] | NDArray[np.str_]
NORMALIZING_ROWS = 4096


@dataclass(frozen=True)
class LabelledSets:
    """Queries and what they are searched in; no gallery means the queries themselves, each without itself.

    queries (N, D), gallery (G, D) or None; classes numbered alike in both, (N,) and (G,); relevant (N,), how many
    gallery items are of a query's class; labels, those of the queries as they were given.
    """

    queries: Tensor
    gallery: Tensor | None
    query_classes: Tensor
    gallery_classes: Tensor
    labels: Tensor | tuple[str, ...]

    @property
    def candidates(self) -> int:
        """How many gallery items a query is compared with."""
        return len(self.gallery_classes) - (self.gallery is None)

    @cached_property
    def relevant(self) -> Tensor:
        """R, the number of a query's candidates that are of its class, (N,)."""
        classes = 1 + int(torch.maximum(self.query_classes.max(), self.gallery_classes.max()))
        sizes = torch.bincount(self.gallery_classes, minlength=classes)
        return sizes[self.query_classes] - int(self.gallery is None)


def labelled_sets(
    embeddings: GivenEmbeddings,
    labels: GivenLabels,
    gallery_embeddings: GivenEmbeddings | None = None,
    gallery_labels: GivenLabels | None = None,
    *,
    normalize: bool = True,
) -> LabelledSets:
    """Check both sets, bring them to one precision and device, normalise them if wanted, number the classes."""
    queries, gallery = as_embeddings(embeddings, "embeddings"), None
    query_labels = labels_of_gallery = as_labels(labels, "labels", len(queries))
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise EquimetricError("a gallery needs both gallery_embeddings and gallery_labels; give both or neither")
    if gallery_embeddings is not None and gallery_labels is not None:
        gallery = as_embeddings(gallery_embeddings, "gallery_embeddings")
        labels_of_gallery = as_labels(gallery_labels, "gallery_labels", len(gallery))
        queries, gallery = _alike(queries, gallery)
    query_classes, gallery_classes = _numbered_classes(query_labels, labels_of_gallery)
    if normalize:
        queries = _normalized(queries, "embeddings")
        gallery = None if gallery is None else _normalized(gallery, "gallery_embeddings")
    else:
        _check_products_finite(queries, queries if gallery is None else gallery)
    sets = LabelledSets(
        queries,
        gallery,
        torch.from_numpy(query_classes).to(queries.device),
        torch.from_numpy(gallery_classes).to(queries.device),
        tuple(query_labels.tolist()) if query_labels.dtype.kind == "U" else torch.from_numpy(query_labels),
    )
    if not sets.relevant.any():
        raise EquimetricError("no query has a gallery item of its class; retrieval cannot be judged on these labels")
    return sets


def as_embeddings(given: GivenEmbeddings, name: str) -> Tensor:
    """Embeddings as a float32 or float64 tensor (N, D) of finite numbers, without gradient."""
    embeddings = _as_float_tensor(given, name)
    if embeddings.ndim != 2:
        raise EquimetricError(f"{name} have shape {tuple(embeddings.shape)}; they must be two-dimensional (N, D)")
    if not embeddings.numel():
        raise EquimetricError(f"{name} are empty (shape {tuple(embeddings.shape)}); there is nothing to evaluate")
    _check_rows(torch.isfinite(embeddings).all(dim=1), f"{name} contain NaN or infinite values", "remove them")
    return embeddings


def as_labels(given: GivenLabels, name: str, count: int) -> Labels:
    """Labels as an array (N,) of int64 or of strings."""
    if isinstance(given, Tensor) and given.is_floating_point():
        raise _no_class_labels(name, given.dtype)
    array = given.cpu().numpy() if isinstance(given, Tensor) else _as_array(given)
    if array.ndim != 1:
        raise EquimetricError(f"{name} have shape {array.shape}; they must be one-dimensional, one per embedding")
    if len(array) != count:
        raise EquimetricError(f"there are {count} embeddings but {len(array)} {name}; give exactly one label for each")
    if array.dtype.kind == "U":
        return array
    if array.dtype.kind not in "iu":
        raise _no_class_labels(name, array.dtype)
    if array.max() > np.iinfo(np.int64).max:
        raise EquimetricError(f"{name} exceed the largest 64-bit integer (2^63 − 1); renumber the classes")
    return array.astype(np.int64)


def _alike(queries: Tensor, gallery: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and gallery of one dimension, in the wider of their precisions, on the queries' device."""
    if queries.shape[1] != gallery.shape[1]:
        raise EquimetricError(
            f"embeddings have {queries.shape[1]} dimensions but gallery_embeddings have {gallery.shape[1]}; "
            "both must come from the same model"
        )
    dtype = torch.promote_types(queries.dtype, gallery.dtype)
    return queries.to(dtype), gallery.to(queries.device, dtype)


def _numbered_classes(labels: Labels, gallery_labels: Labels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The classes of queries and gallery, numbered from 0 on."""
    if labels.dtype.kind != gallery_labels.dtype.kind:
        raise EquimetricError("labels and gallery_labels must both be integers or both be strings to be compared")
    classes, ids = np.unique(np.concatenate([labels, gallery_labels]), return_inverse=True)
    if len(classes) == 1:
        raise EquimetricError(
            f"all labels are the same class ({classes[0]}); retrieval can only be judged with at least two classes"
        )
    return ids[: len(labels)], ids[len(labels) :]


def _normalized(embeddings: Tensor, name: str) -> Tensor:
    """Each row divided by its length; the length is taken in float64, where float32 neither overflows nor vanishes."""
    result = torch.empty_like(embeddings)
    length = torch.empty(len(embeddings), dtype=torch.float64, device=embeddings.device)
    for rows in slices(len(embeddings), NORMALIZING_ROWS):
        exact = embeddings[rows].double()
        length[rows] = torch.linalg.vector_norm(exact, dim=1)
        result[rows] = exact / length[rows, None]
    _check_rows(
        (length > 0) & length.isfinite(),
        f"{name} contain vectors of length zero (or too long for float64)",
        "they have no direction to compare by: remove them, or pass normalize=False",
    )
    return result


def _check_products_finite(queries: Tensor, gallery: Tensor) -> None:
    """Vectors that were not normalised may be so long that their inner products overflow."""
    longest = [torch.linalg.vector_norm(vectors, dim=1).max() for vectors in (queries, gallery)]
    if not torch.isfinite(longest[0] * longest[1]):
        raise EquimetricError(
            f"the embeddings are so long that inner products overflow {str(queries.dtype).removeprefix('torch.')}; "
            "rescale them or pass normalize=True"
        )


def _as_float_tensor(given: GivenEmbeddings, name: str) -> Tensor:
    if isinstance(given, np.ndarray) and given.dtype.kind == "f" and given.dtype.itemsize <= 8:
        native = np.float64 if given.dtype.itemsize == 8 else np.float32
        return torch.from_numpy(np.require(given, native, ["C_CONTIGUOUS", "WRITEABLE"]))
    if isinstance(given, Tensor) and given.is_floating_point():
        # Apple's GPUs have no float64, which exact ties need.
        tensor = given.detach().cpu() if given.device.type == "mps" else given.detach()
        return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    kind = given.dtype if isinstance(given, Tensor | np.ndarray) else type(given).__name__
    raise EquimetricError(f"{name} are of type {kind}; give a torch tensor or numpy array of floating-point numbers")


def _as_array(given: NDArray[Any] | Sequence[int] | Sequence[str]) -> NDArray[Any]:
    """Strings only where every label is one: numpy alone would silently turn 1 beside "a" into "1"."""
    array = np.asarray(given)
    if array.dtype.kind in "OT" and all(isinstance(label, str) for label in array.flat):
        return np.array(array.tolist(), dtype=np.str_)
    if array.dtype.kind == "U" and not all(isinstance(label, str) for label in given):
        raise EquimetricError("labels mix strings with other types; give either strings only or integers only")
    return array


def _no_class_labels(name: str, dtype: object) -> EquimetricError:
    return EquimetricError(
        f"{name} are of type {dtype}; class labels must be integers or strings, so convert them first "
        "(whole numbers: labels.long() or labels.astype(int))"
    )


def _check_rows(good: Tensor, what: str, remedy: str) -> None:
    if good.all():
        return
    bad = (~good).nonzero().flatten()
    rows = "1 row" if len(bad) == 1 else f"{len(bad)} rows"
    raise EquimetricError(f"{what} in {rows} of {len(good)}, the first is row {int(bad[0])}; {remedy}")
