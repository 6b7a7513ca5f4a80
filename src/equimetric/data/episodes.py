"""Few-shot episodes: some images of every class to learn from, the same for every method."""

import hashlib
import json

import torch
from torch import Tensor

from equimetric.data.dataset import Dataset
from equimetric.errors import EquimetricError
from equimetric.seeding import derive_seed

__all__ = ["draw_support", "episode_seed"]


def episode_seed(dataset: Dataset, rows: Tensor, episode: int) -> int:
    """The seed of an episode of some rows; it follows from their classes alone, not from size or view of the images."""
    labels = dataset.labels[rows].tolist()
    names = [dataset.class_names[label] for label in sorted(set(labels))]
    content = hashlib.sha256(json.dumps([names, labels]).encode()).hexdigest()
    return derive_seed(content, "episode", episode)


def draw_support(labels: Tensor, shots: int, seed: int, *, spare: int = 2) -> Tensor:
    """Ascending positions of `shots` random images of every class; a class keeps `spare` images and gives fewer.

    With one seed the images of few shots are among those of more.   Shapes: labels (M,) → (S,).
    """
    if shots < 1:
        raise EquimetricError(f"shots is {shots}; an episode shows at least one image of every class")
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    classes, class_index = torch.unique(labels, return_inverse=True)
    order = shuffled[class_index[shuffled].argsort(stable=True)]
    sizes = torch.bincount(class_index)
    rank = torch.arange(len(labels)) - (sizes.cumsum(0) - sizes)[class_index[order]]
    n_shown = (sizes - spare).clamp(min=0, max=shots)
    support = order[rank < n_shown[class_index[order]]].sort().values
    if not len(support):
        raise EquimetricError(
            f"none of {len(classes)} classes has more than {spare} images, so there is nothing to show; add images"
        )
    return support
