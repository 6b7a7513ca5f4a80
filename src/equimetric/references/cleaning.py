"""The cleaning step after training with several centres per class: dominant centres and the samples far from them."""

from typing import NamedTuple

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.geometry import unit
from equimetric.references.proxies import ProxyReferences

__all__ = ["DominantCentres", "dominant_centres"]


class DominantCentres(NamedTuple):
    """The dominant centre of each class, and the samples far from it."""

    chosen: Tensor
    """(C,) index of the dominant one of a class's K centres: the nearest to most of its samples."""
    proxies: Tensor
    """(C, D) the dominant centres, to continue with per_class=1."""
    degrees: Tensor
    """(N,) the angle between each sample and the dominant centre of its class."""
    noisy: Tensor
    """Ascending indices of the samples whose angle is too wide."""


@torch.no_grad()
def dominant_centres(
    references: ProxyReferences, embeddings: Tensor, labels: Tensor, *, max_angle_deg: float = 75.0
) -> DominantCentres:
    """Keep only the dominant centre of each class, and list the samples farther from it than `max_angle_deg`.

    This is the cleaning step of sub-centre ArcFace (Deng et al. 2020): odd and wrongly labelled samples gather around
    other centres, so those far from the dominant one are left out when the model is trained again with one centre per
    class. `embeddings` (N, D) and `labels` (N,) are those of the whole training set. With a tie between centres, and
    for a class without samples, the first is dominant.
    """
    if references.shard.is_sharded:
        raise EquimetricError("the centres are sharded over several processes; load them into one with sharded=False")
    if references.assignment == "dynamic":
        raise EquimetricError("dynamically assigned proxies belong to no class; train with assignment='static'")
    labels = references.check_classes(labels, embeddings)
    centres = references.by_class(unit(references.weight))
    embeddings = unit(embeddings.to(centres))
    labels = labels.to(centres.device)
    by_centre = [(embeddings * centres[labels, k]).sum(1) for k in range(references.per_class)]
    cosine = torch.stack(by_centre, 1)
    votes = torch.zeros(references.classes, references.per_class, dtype=torch.int64, device=labels.device)
    votes.index_put_((labels, cosine.argmax(1)), torch.ones_like(labels), accumulate=True)
    chosen = votes.argmax(1)
    proxies = references.by_class(references.weight)[torch.arange(len(chosen), device=chosen.device), chosen]
    class_cosine = cosine.gather(1, chosen[labels][:, None])[:, 0]
    degrees = class_cosine.clamp(-1, 1).arccos().rad2deg()
    return DominantCentres(chosen, proxies.clone(), degrees, (degrees > max_angle_deg).nonzero()[:, 0])
