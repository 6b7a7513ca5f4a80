"""Attributes of the classes and images of a data set, as numbers."""

from collections.abc import Mapping

import torch
from torch import Tensor

from equimetric.data.dataset import Dataset
from equimetric.errors import EquimetricError, did_you_mean

__all__ = ["attribute_ids", "class_attribute_ids", "count_values", "find_attribute"]


def attribute_ids(data: Dataset) -> dict[str, Tensor]:
    """(N,) ids of every attribute of a data set's classes and samples, values in sorted order."""
    by_class = {
        name: [values[label] for label in data.labels.tolist()] for name, values in data.class_attributes.items()
    }
    ids = {}
    for name, values in {**by_class, **data.sample_attributes}.items():
        id_of = {value: index for index, value in enumerate(sorted(set(values)))}
        ids[name] = torch.tensor([id_of[value] for value in values])
    return ids


def count_values(data: Dataset, rows: Tensor) -> dict[str, int]:
    """Number of different values of every attribute among some rows."""
    labels = torch.unique(data.labels[rows]).tolist()
    by_class = {name: len({values[label] for label in labels}) for name, values in data.class_attributes.items()}
    row_list = rows.tolist() if data.sample_attributes else []
    return by_class | {name: len({values[row] for row in row_list}) for name, values in data.sample_attributes.items()}


def find_attribute(attributes: Mapping[str, Tensor], name: str, option: str) -> Tensor:
    """(N,) ids of an attribute that an option names."""
    if name not in attributes:
        raise EquimetricError(f"{option} = {name!r} names no attribute of the data; {did_you_mean(name, attributes)}")
    return attributes[name]


def class_attribute_ids(data: Dataset, name: str, option: str) -> Tensor:
    """(C,) ids of the attribute that an option names, by class; an error where images of one class have several."""
    ids, labels = find_attribute(attribute_ids(data), name, option), data.labels
    of_class = torch.zeros(data.classes, dtype=torch.int64).scatter_(0, labels, ids)
    conflicting = (of_class[labels] != ids).nonzero().flatten()
    if len(conflicting):
        class_name = data.class_names[int(labels[conflicting[0]])]
        raise EquimetricError(f"{option} = {name!r} has several values in class {class_name!r}; every class has one")
    return of_class
