"""Evaluation within parents: a query is compared only with items of its own superclass.

Against the whole gallery a model may score well by telling bottles from apples; among apples alone it has to tell one
kind from another. Pairs of two parents are no pairs: they rank nowhere, and no threshold counts them.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.inputs import LabelArray, LabelsLike, convert_labels
from equimetric.evaluation.engine.label_sets import MultiLabelSets
from equimetric.evaluation.engine.pair_distances import PairDistances
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.families import METRICS, Metric
from equimetric.evaluation.metrics.rankings import NearestNeighbours, RelevantRanks

__all__ = ["check_parent_metrics", "number_parents"]

PAIRWISE = {NearestNeighbours, RelevantRanks, PairDistances}
"""Collectors to which a pair that is not compared does not exist."""


def check_parent_metrics(metrics: tuple[Metric, ...]) -> None:
    """Raise an error for a metric that does not compare queries with items pair by pair."""
    for metric in metrics:
        collectors = METRICS[metric.family].collectors
        if not collectors or not set(collectors) <= PAIRWISE:
            raise EquimetricError(
                f"{metric.name!r} describes the whole space, not single comparisons; leave it out, or the parents"
            )


def number_parents(
    sets: LabelledSets, parents: LabelsLike | None, gallery_parents: LabelsLike | None
) -> tuple[Tensor, Tensor]:
    """(N,) and (G,) numbers of the parents of queries and gallery items; a class has one parent."""
    if parents is None or (gallery_parents is None) != (sets.gallery is None):
        raise EquimetricError("give parents and gallery_parents with a gallery, parents alone without")
    query_parents = convert_labels(parents, "parents", len(sets.queries))
    item_parents = query_parents
    if gallery_parents is not None:
        item_parents = convert_labels(gallery_parents, "gallery_parents", len(sets.gallery_classes))
    if query_parents.dtype.kind != item_parents.dtype.kind:
        raise EquimetricError("parents and gallery_parents must both be integers or both be strings to be compared")
    names, indices = np.unique(np.concatenate([query_parents, item_parents]), return_inverse=True)
    # Samples that share a label may have different parents: they are not compared.
    if not isinstance(sets, MultiLabelSets):
        require_one_parent(sets, names, indices)
    device = sets.queries.device
    queries, gallery = indices[: len(query_parents)], indices[len(query_parents) :]
    return torch.from_numpy(queries).to(device), torch.from_numpy(gallery).to(device)


def require_one_parent(sets: LabelledSets, names: LabelArray, parents: NDArray[np.int64]) -> None:
    """Raise an error where samples of one class have different parents."""
    classes = torch.cat([sets.query_classes, sets.gallery_classes]).cpu().numpy()
    first = np.zeros(len(sets.class_labels), np.int64)
    first[classes[::-1]] = parents[::-1]
    wrong = np.flatnonzero(first[classes] != parents)
    if len(wrong):
        row = wrong[0]
        label, parent, other_parent = sets.class_labels[classes[row]], names[first[classes[row]]], names[parents[row]]
        raise EquimetricError(
            f"class {label!r} has the parents {parent!r} and {other_parent!r}; every class has one parent"
        )
