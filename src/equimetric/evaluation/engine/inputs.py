"""The user's embeddings and labels, checked and converted into `LabelledSets`."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.engine.compared_vectors import GeometryLike, apply_geometry, cached_pieces, check_rows
from equimetric.evaluation.engine.label_sets import (
    LabelMatrices,
    MultiLabelSets,
    has_label_sets,
    match_label_sets,
    refuse_label_lists,
)
from equimetric.evaluation.engine.mapped_vectors import MappedVectors, Vectors, is_mapped
from equimetric.evaluation.engine.sets import GeometryName, LabelledSets
from equimetric.geometry import BUILT_IN, Geometry, find_geometry

if TYPE_CHECKING:
    from equimetric.evaluation.cohort import Cohort

__all__ = [
    "GEOMETRY_NAMES",
    "EmbeddingsLike",
    "GeometryLike",
    "LabelArray",
    "LabelsLike",
    "convert_embeddings",
    "convert_labels",
    "prepare_sets",
]

EmbeddingsLike = Tensor | NDArray[Any]
LabelsLike = Tensor | NDArray[Any] | Sequence[int] | Sequence[str] | Sequence[AbstractSet[int] | AbstractSet[str]]
LabelArray = NDArray[np.int64] | NDArray[np.str_]
GEOMETRY_NAMES: tuple[GeometryName, ...] = get_args(GeometryName)


def prepare_sets(
    embeddings: EmbeddingsLike,
    labels: LabelsLike,
    gallery_embeddings: EmbeddingsLike | None = None,
    gallery_labels: LabelsLike | None = None,
    *,
    geometry: GeometryLike = "cosine",
    query_ids: LabelsLike | None = None,
    gallery_ids: LabelsLike | None = None,
    multi_label: bool = False,
    one_class: bool = False,
    cohort: "Cohort | None" = None,
) -> LabelledSets:
    """Check both sets, bring them to one precision, device and geometry, and number the classes.

    With `multi_label`, samples may have several labels each: see `label_sets`; with `one_class` all may have the same
    one. With a cohort the sets hold extended vectors, whose inner products are the normalised similarities: see
    `Cohort`.
    """
    if cohort is not None:
        cohort.require_cosine(geometry)
    custom = None if isinstance(geometry, str) and geometry in GEOMETRY_NAMES else find_custom_geometry(geometry)
    queries, gallery = _open_embeddings(embeddings, "embeddings"), None
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise EquimetricError("a gallery needs both gallery_embeddings and gallery_labels; give both or neither")
    if gallery_embeddings is not None and gallery_labels is not None:
        gallery = _open_embeddings(gallery_embeddings, "gallery_embeddings")
        queries, gallery = _match_precision(queries, gallery)
    counts = len(queries), None if gallery is None else len(gallery)
    if multi_label and has_label_sets(labels):
        classes = _label_set_fields(match_label_sets(labels, gallery_labels, *counts), queries.device)
    else:
        if multi_label:
            refuse_label_lists(labels, len(queries))
        classes = _class_fields(labels, gallery_labels, *counts, queries.device)
    excluded = _find_same_images(query_ids, gallery_ids, *counts)
    queries, gallery = apply_geometry(queries, gallery, geometry if custom is None else custom)
    sets = (MultiLabelSets if "query_labels" in classes else LabelledSets)(
        queries=queries,
        gallery=gallery,
        geometry=str(geometry) if custom is None else custom.name,
        excluded=None if excluded is None else torch.from_numpy(excluded).to(queries.device),
        custom_geometry=custom,
        **classes,
    )
    sets.require_pairs(one_class=one_class)
    if cohort is None:
        return sets
    cohort.warn_if_narrow()
    return cohort.normalize(sets)


def _open_embeddings(array: EmbeddingsLike, name: str) -> Vectors:
    """As `convert_embeddings`, but a memory-mapped array stays on disk."""
    if not isinstance(array, np.memmap) or not is_mapped(array):
        return convert_embeddings(array, name)
    embeddings = MappedVectors.from_array(array)
    finite = torch.empty(len(embeddings), dtype=torch.bool)
    for rows in cached_pieces(embeddings):
        finite[rows] = torch.isfinite(embeddings[rows]).all(dim=1)
    check_rows(finite, f"{name} contain NaN or infinite values", "remove them")
    return embeddings


def convert_embeddings(array: EmbeddingsLike, name: str) -> Tensor:
    """Embeddings as a float32 or float64 tensor (N, D) of finite numbers, without gradient."""
    embeddings = _to_float_tensor(array, name)
    if embeddings.ndim != 2:
        raise EquimetricError(f"{name} have shape {tuple(embeddings.shape)}; they must be two-dimensional (N, D)")
    if not embeddings.numel():
        raise EquimetricError(f"{name} are empty (shape {tuple(embeddings.shape)}); there is nothing to evaluate")
    # One pass: a finite sum proves finite entries. The sum itself may overflow, so check rows before raising.
    if not torch.isfinite(embeddings.sum(dim=1)).all():
        check_rows(torch.isfinite(embeddings).all(dim=1), f"{name} contain NaN or infinite values", "remove them")
    return embeddings


def convert_labels(labels: LabelsLike, name: str, count: int) -> LabelArray:
    """Labels as an array (N,) of int64 or of strings."""
    if isinstance(labels, Tensor) and labels.is_floating_point():
        raise _bad_label_type(name, labels.dtype)
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else _to_array(labels)
    if array.ndim != 1:
        column = array.ndim == 2 and array.shape[1] == 1
        advice = f": {name}.squeeze(1)" if column else ""
        raise EquimetricError(
            f"{name} have shape {array.shape}; they must be one-dimensional, one per embedding{advice}"
        )
    if len(array) != count:
        raise EquimetricError(f"there are {count} embeddings but {len(array)} {name}; give exactly one label for each")
    if array.dtype.kind == "U":
        return array
    if array.dtype.kind not in "iu":
        raise _bad_label_type(name, array.dtype)
    if array.max() > np.iinfo(np.int64).max:
        raise EquimetricError(f"{name} exceed the largest 64-bit integer (2^63 − 1); renumber the classes")
    return array.astype(np.int64)


def _class_fields(
    labels: LabelsLike, gallery_labels: LabelsLike | None, queries: int, gallery: int | None, device: torch.device
) -> dict[str, Any]:
    """The fields of `LabelledSets` that follow from one label for each sample."""
    query_labels = item_labels = convert_labels(labels, "labels", queries)
    if gallery is not None and gallery_labels is not None:
        item_labels = convert_labels(gallery_labels, "gallery_labels", gallery)
    class_labels, query_classes, gallery_classes = _number_classes(query_labels, item_labels)
    return {
        "query_classes": torch.from_numpy(query_classes).to(device),
        "gallery_classes": torch.from_numpy(gallery_classes).to(device),
        "labels": tuple(query_labels.tolist()) if query_labels.dtype.kind == "U" else torch.from_numpy(query_labels),
        "class_labels": class_labels,
    }


def _label_set_fields(matrices: LabelMatrices, device: torch.device) -> dict[str, Any]:
    """The fields of `MultiLabelSets` that follow from several labels for each sample."""
    query_classes, gallery_classes = matrices.groups()
    return {
        "query_classes": query_classes.to(device),
        "gallery_classes": gallery_classes.to(device),
        "labels": matrices.queries,
        "class_labels": matrices.class_labels,
        "query_labels": matrices.queries.to(device),
        "gallery_labels": matrices.gallery.to(device),
    }


def _match_precision(queries: Vectors, gallery: Vectors) -> tuple[Vectors, Vectors]:
    """Queries and gallery in the wider of their precisions, on the queries' device."""
    if queries.shape[1] != gallery.shape[1]:
        raise EquimetricError(
            f"embeddings have {queries.shape[1]} dimensions but gallery_embeddings have {gallery.shape[1]}; "
            "both must come from the same model"
        )
    dtype = torch.promote_types(queries.dtype, gallery.dtype)
    if isinstance(gallery, Tensor):
        gallery = gallery.to(queries.device)
    elif queries.device.type != "cpu":
        raise EquimetricError(
            f"gallery_embeddings are on disk and embeddings on {queries.device}; move these to the CPU"
        )
    return queries.to(dtype), gallery.to(dtype)


def _number_classes(
    labels: LabelArray, gallery_labels: LabelArray
) -> tuple[tuple[int, ...] | tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]:
    """The labels of all classes, and the class numbers of queries and gallery."""
    if labels.dtype.kind != gallery_labels.dtype.kind:
        raise EquimetricError("labels and gallery_labels must both be integers or both be strings to be compared")
    if gallery_labels is labels:
        classes, ids = np.unique(labels, return_inverse=True)
        return tuple(classes.tolist()), ids, ids
    classes, ids = np.unique(np.concatenate([labels, gallery_labels]), return_inverse=True)
    return tuple(classes.tolist()), ids[: len(labels)], ids[len(labels) :]


def _find_same_images(
    query_ids: LabelsLike | None, gallery_ids: LabelsLike | None, queries: int, gallery: int | None
) -> NDArray[np.int64] | None:
    """Pairs (query, gallery item) of equal id, (P, 2); within one set without those of a query and itself."""
    if query_ids is None and gallery_ids is None:
        return None
    if query_ids is None or (gallery_ids is None) != (gallery is None):
        raise EquimetricError(
            "give query_ids and gallery_ids with a gallery, query_ids alone without; equal ids mark the same image"
        )
    ids = convert_labels(query_ids, "query_ids", queries)
    item_ids = ids if gallery_ids is None or gallery is None else convert_labels(gallery_ids, "gallery_ids", gallery)
    if ids.dtype.kind != item_ids.dtype.kind:
        raise EquimetricError("query_ids and gallery_ids must both be integers or both be strings to be compared")
    order = item_ids.argsort(kind="stable")
    first, end = (np.searchsorted(item_ids[order], ids, side) for side in ("left", "right"))
    query = np.repeat(np.arange(queries), end - first)
    within = np.arange(len(query)) - np.repeat((end - first).cumsum() - (end - first), end - first)
    pairs = np.stack([query, order[first[query] + within]], axis=1)
    return pairs[pairs[:, 0] != pairs[:, 1]] if gallery is None else pairs


def find_custom_geometry(geometry: GeometryLike) -> Geometry:
    """A Lp or hyperbolic distance by name, a geometry that was registered, or one of the user's own."""
    # Those of objectives that the scan does not know would be slow and inexact, or compare nothing.
    if isinstance(geometry, str) and geometry in BUILT_IN:
        raise unknown_name("geometry of an evaluation", geometry, [*GEOMETRY_NAMES, "l1", "linf", "hyperbolic"])
    return find_geometry(geometry)


def _to_float_tensor(array: EmbeddingsLike, name: str) -> Tensor:
    if isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        native = np.float64 if array.dtype.itemsize == 8 else np.float32
        return torch.from_numpy(np.require(array, native, ["C_CONTIGUOUS", "WRITEABLE"]))
    if isinstance(array, Tensor) and array.is_floating_point():
        # Apple's GPUs have no float64, which exact ties need.
        tensor = array.detach().cpu() if array.device.type == "mps" else array.detach()
        return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    kind = array.dtype if isinstance(array, Tensor | np.ndarray) else type(array).__name__
    raise EquimetricError(f"{name} are of type {kind}; give a torch tensor or numpy array of floating-point numbers")


def _to_array(labels: NDArray[Any] | Sequence[Any]) -> NDArray[Any]:
    """An array of strings only if every label is one: numpy alone would turn 1 beside "a" into "1"."""
    array = np.asarray(labels)
    if array.dtype.kind in "OT" and all(isinstance(label, str) for label in array.flat):
        return np.array(array.tolist(), dtype=np.str_)
    if array.dtype.kind == "U" and not all(isinstance(label, str) for label in labels):
        raise EquimetricError("labels mix strings with other types; give either strings only or integers only")
    return array


def _bad_label_type(name: str, dtype: object) -> EquimetricError:
    return EquimetricError(
        f"{name} are of type {dtype}; class labels must be integers or strings, so convert them first "
        "(whole numbers: labels.long() or labels.astype(int))"
    )
