"""What the user gave, checked and brought into one form: finite embeddings and numbered classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.exact import slices

__all__ = [
    "GEOMETRIES",
    "Geometry",
    "GivenEmbeddings",
    "GivenLabels",
    "LabelledSets",
    "as_embeddings",
    "as_labels",
    "labelled_sets",
]

GivenEmbeddings = Tensor | NDArray[Any]
GivenLabels = Tensor | NDArray[Any] | Sequence[int] | Sequence[str]
Labels = NDArray[np.int64] | NDArray[np.str_]
Geometry = Literal["cosine", "euclidean", "dot", "hamming"]
GEOMETRIES: tuple[Geometry, ...] = get_args(Geometry)
NORMALIZING_BYTES = 2**20
"""Float64 copies of embeddings while these are normalised: they should stay in the cache."""
UNIT_WITHIN = 16
"""Vectors that were normalised are of length 1 up to some such steps of rounding."""


@dataclass(frozen=True)
class LabelledSets:
    """Queries and what they are searched in; no gallery means the queries themselves, each without itself.

    queries (N, D), gallery (G, D) or None: unit vectors for cosine, ±1 for Hamming; classes numbered alike in both,
    (N,) and (G,), by the place of their label in `class_labels`; labels, those of the queries as they were given;
    absent (P, 2), pairs (query, gallery item) that show the same image and are not compared.
    """

    queries: Tensor
    gallery: Tensor | None
    query_classes: Tensor
    gallery_classes: Tensor
    labels: Tensor | tuple[str, ...]
    class_labels: tuple[int, ...] | tuple[str, ...]
    geometry: Geometry = "cosine"
    absent: Tensor | None = None

    @property
    def gallery_vectors(self) -> Tensor:
        """The vectors that are searched, (G, D)."""
        return self.queries if self.gallery is None else self.gallery

    @property
    def candidates(self) -> int:
        """The largest number of gallery items that a query is compared with."""
        return len(self.gallery_classes) - (self.gallery is None)

    @cached_property
    def relevant(self) -> Tensor:
        """R, the number of gallery items of its class that a query is compared with, (N,)."""
        sizes = torch.bincount(self.gallery_classes, minlength=len(self.class_labels))
        relevant = sizes[self.query_classes] - int(self.gallery is None)
        if self.absent is not None:
            query, item = self.absent.unbind(1)
            of_its_class = self.query_classes[query] == self.gallery_classes[item]
            relevant -= torch.bincount(query[of_its_class], minlength=len(self.queries))
        return relevant

    def is_relevant(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Whether gallery items (Q, k) are of the class of their query (Q,); an index below 0 is nobody's."""
        return (self.gallery_classes[columns] == self.query_classes[rows, None]) & (columns >= 0)

    def relevant_columns(self, rows: Tensor) -> Tensor:
        """The gallery items of each query's class, left-out ones too, (Q, largest class); −1 behind them."""
        members, offsets = self._members
        first, end = offsets[self.query_classes[rows], None], offsets[self.query_classes[rows] + 1, None]
        places = first + torch.arange(max(1, int((end - first).max())), device=rows.device)
        return torch.where(places < end, members[places.clamp(max=len(members) - 1)], -1)

    @cached_property
    def order_by_class(self) -> Tensor:
        """The queries class by class, classes of few relevant items first, (N,): rows alike make quick tiles."""
        relevant = torch.zeros(len(self.class_labels), dtype=torch.int64, device=self.queries.device)
        relevant = relevant.scatter_reduce(0, self.query_classes, self.relevant, "amax")
        place = torch.empty_like(relevant)
        place[relevant.argsort(stable=True)] = torch.arange(len(place), device=place.device)
        return place[self.query_classes].argsort(stable=True)

    @cached_property
    def _members(self) -> tuple[Tensor, Tensor]:
        """Gallery items class by class, those of class c at offsets[c] … offsets[c + 1]."""
        sizes = torch.bincount(self.gallery_classes, minlength=len(self.class_labels))
        return self.gallery_classes.argsort(stable=True), torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def labelled_sets(
    embeddings: GivenEmbeddings,
    labels: GivenLabels,
    gallery_embeddings: GivenEmbeddings | None = None,
    gallery_labels: GivenLabels | None = None,
    *,
    geometry: Geometry = "cosine",
    query_ids: GivenLabels | None = None,
    gallery_ids: GivenLabels | None = None,
) -> LabelledSets:
    """Check both sets, bring them to one precision and device and into the form of the geometry, number the classes."""
    if geometry not in GEOMETRIES:
        raise unknown_name("geometry", geometry, GEOMETRIES)
    queries, gallery = as_embeddings(embeddings, "embeddings"), None
    query_labels = labels_of_gallery = as_labels(labels, "labels", len(queries))
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise EquimetricError("a gallery needs both gallery_embeddings and gallery_labels; give both or neither")
    if gallery_embeddings is not None and gallery_labels is not None:
        gallery = as_embeddings(gallery_embeddings, "gallery_embeddings")
        labels_of_gallery = as_labels(gallery_labels, "gallery_labels", len(gallery))
        queries, gallery = _alike(queries, gallery)
    class_labels, query_classes, gallery_classes = _numbered_classes(query_labels, labels_of_gallery)
    absent = _same_images(query_ids, gallery_ids, len(queries), None if gallery is None else len(gallery))
    queries, gallery = _in_geometry(queries, gallery, geometry)
    sets = LabelledSets(
        queries,
        gallery,
        torch.from_numpy(query_classes).to(queries.device),
        torch.from_numpy(gallery_classes).to(queries.device),
        tuple(query_labels.tolist()) if query_labels.dtype.kind == "U" else torch.from_numpy(query_labels),
        class_labels,
        geometry,
        None if absent is None else torch.from_numpy(absent).to(queries.device),
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
    # A sum passes on what is not finite, in one pass; sums may overflow, so it only acquits.
    if not torch.isfinite(embeddings.sum(dim=1)).all():
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


def _numbered_classes(
    labels: Labels, gallery_labels: Labels
) -> tuple[tuple[int, ...] | tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]:
    """The labels of all classes, and the classes of queries and gallery as places among these."""
    if labels.dtype.kind != gallery_labels.dtype.kind:
        raise EquimetricError("labels and gallery_labels must both be integers or both be strings to be compared")
    classes, ids = np.unique(np.concatenate([labels, gallery_labels]), return_inverse=True)
    if len(classes) == 1:
        raise EquimetricError(
            f"all labels are the same class ({classes[0]}); retrieval can only be judged with at least two classes"
        )
    return tuple(classes.tolist()), ids[: len(labels)], ids[len(labels) :]


def _same_images(
    query_ids: GivenLabels | None, gallery_ids: GivenLabels | None, queries: int, gallery: int | None
) -> NDArray[np.int64] | None:
    """Pairs (query, gallery item) of equal id, (P, 2); within one set without the pairs of a query and itself."""
    if query_ids is None and gallery_ids is None:
        return None
    if query_ids is None or (gallery_ids is None) != (gallery is None):
        raise EquimetricError(
            "ids tell which images are the same: give query_ids and gallery_ids with a gallery, query_ids alone without"
        )
    ids = as_labels(query_ids, "query_ids", queries)
    others = ids if gallery_ids is None or gallery is None else as_labels(gallery_ids, "gallery_ids", gallery)
    if ids.dtype.kind != others.dtype.kind:
        raise EquimetricError("query_ids and gallery_ids must both be integers or both be strings to be compared")
    order = others.argsort(kind="stable")
    first, end = (np.searchsorted(others[order], ids, side) for side in ("left", "right"))
    query = np.repeat(np.arange(queries), end - first)
    within = np.arange(len(query)) - np.repeat((end - first).cumsum() - (end - first), end - first)
    pairs = np.stack([query, order[first[query] + within]], axis=1)
    return pairs[pairs[:, 0] != pairs[:, 1]] if gallery is None else pairs


def _in_geometry(queries: Tensor, gallery: Tensor | None, geometry: Geometry) -> tuple[Tensor, Tensor | None]:
    """The vectors that the geometry compares: of unit length for cosine, of ±1 for Hamming, else as they are."""
    if geometry == "cosine":
        unit = _normalized(queries, "embeddings")
        return unit, None if gallery is None else _normalized(gallery, "gallery_embeddings")
    if geometry == "hamming":
        return _bits(queries), None if gallery is None else _bits(gallery)
    if geometry == "dot":
        _check_products_finite(queries, queries if gallery is None else gallery)
    return queries, gallery


def _bits(embeddings: Tensor) -> Tensor:
    """Entries above zero as +1, others as −1; in float32, which holds their sums exactly."""
    return (embeddings > 0).float().mul_(2).sub_(1)


def _normalized(embeddings: Tensor, name: str) -> Tensor:
    """Each row divided by its length; the length is taken in float64, where float32 neither overflows nor vanishes.

    Where all are of length 1 up to rounding, they are taken as they are: nothing is copied.
    """
    length = torch.empty(len(embeddings), dtype=torch.float64, device=embeddings.device)
    pieces = slices(len(embeddings), max(1, NORMALIZING_BYTES // (8 * embeddings.shape[1])))
    for rows in pieces:
        length[rows] = torch.linalg.vector_norm(embeddings[rows].double(), dim=1)
    _check_rows(
        (length > 0) & length.isfinite(),
        f"{name} contain vectors of length zero (or too long for float64)",
        "they have no direction to compare by: remove them, or pass geometry='euclidean' or 'dot'",
    )
    if (length - 1).abs().max() <= UNIT_WITHIN * torch.finfo(embeddings.dtype).eps:
        return embeddings
    unit = torch.empty_like(embeddings)
    for rows in pieces:
        unit[rows] = embeddings[rows].double() / length[rows, None]
    return unit


def _check_products_finite(queries: Tensor, gallery: Tensor) -> None:
    """Vectors that were not normalised may be so long that their inner products overflow."""
    longest = [torch.linalg.vector_norm(vectors, dim=1).max() for vectors in (queries, gallery)]
    if not torch.isfinite(longest[0] * longest[1]):
        raise EquimetricError(
            f"the embeddings are so long that inner products overflow {str(queries.dtype).removeprefix('torch.')}; "
            "rescale them or pass geometry='cosine'"
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
