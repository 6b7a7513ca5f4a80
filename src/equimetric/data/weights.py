"""Weights of samples, stored as an attribute of a data set."""

from math import isfinite

import torch
from torch import Tensor

from equimetric.data.dataset import Dataset
from equimetric.errors import EquimetricError, did_you_mean, quote

__all__ = ["sample_weights"]


def sample_weights(data: Dataset, name: str) -> Tensor:
    """(N,) float64: how often each sample counts, by an attribute of the samples or of their classes."""
    if name in data.sample_attributes:
        texts = data.sample_attributes[name]
    elif name in data.class_attributes:
        by_class = data.class_attributes[name]
        texts = tuple(by_class[label] for label in data.labels.tolist())
    else:
        attributes = [*data.sample_attributes, *data.class_attributes]
        raise EquimetricError(
            f"data.weights = {quote(name)} names no attribute of the data; {did_you_mean(name, attributes)}"
        )
    return torch.tensor([_number(text, name, row) for row, text in enumerate(texts, start=1)], dtype=torch.float64)


def _number(text: str, name: str, row: int) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number) or number < 0:
        fault = f"is {quote(text)}" if text else "is missing"
        raise EquimetricError(
            f"data.weights = {quote(name)}: the weight of image {row:,} {fault}; give every image a finite number of 0 "
            "or more, which is how often it counts"
        )
    return number
