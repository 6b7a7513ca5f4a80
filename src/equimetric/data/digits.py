"""Handwritten digits: the smallest real images, for quick experiments."""

import numpy as np
import torch

from equimetric.data.dataset import Dataset
from equimetric.data.registry import dataset

__all__ = ["load_digits"]

MAX_BRIGHTNESS = 16  # the values of the source run from 0 to 16


@dataset("digits")
def load_digits() -> Dataset:
    """1,797 handwritten digits of 8×8 grey pixels in 10 classes, from scikit-learn; for smoke tests."""
    from sklearn.datasets import load_digits as load_source

    source = load_source()
    grey = np.rint(source.images * (255 / MAX_BRIGHTNESS)).astype(np.uint8)
    images = torch.from_numpy(grey).unsqueeze(1)
    labels = torch.from_numpy(source.target.astype(np.int64))
    return Dataset(
        name="digits",
        images=images,
        labels=labels,
        class_names=tuple(str(digit) for digit in range(10)),
        class_attributes={},
        sample_attributes={},
    )
