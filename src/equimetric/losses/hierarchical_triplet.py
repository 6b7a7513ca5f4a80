"""Hierarchical triplet loss: the margin of a triplet grows with the distance of its classes in a tree."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from equimetric import ops
from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.pairs import Pairs


class ClassTree(NamedTuple):
    """C classes merged level by level."""

    class_ids: Tensor
    """(C,) ascending."""
    within_class: Tensor
    """(C,) s_c, the mean squared distance of two samples of a class; 0 for a class of one."""
    class_distance: Tensor
    """(C, C) mean squared distance between the samples of two classes."""
    thresholds: Tensor
    """(levels + 1,) d_l = d_0 + l (4 − d_0) / levels, d_0 the mean of s_c."""
    merged_at: Tensor
    """(C, C) the threshold of the lowest level at which two classes are one."""


def build_class_tree(embeddings: Tensor, labels: Tensor, levels: int) -> ClassTree:
    """The tree of the classes of a whole training set, from embeddings scaled to unit length.

    At level l classes closer than d_l are merged, directly or through others.
    """
    embeddings = ops.unit(embeddings)
    class_ids, member, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    counts = counts.to(embeddings.dtype)
    zeros = embeddings.new_zeros(len(class_ids), embeddings.shape[1])
    mean = zeros.index_add(0, member, embeddings) / counts[:, None]
    variance = torch.zeros_like(counts).index_add(0, member, (embeddings - mean[member]).square().sum(1)) / counts
    class_distance = ops.special.squared_distance(mean, mean) + variance[:, None] + variance[None, :]
    class_distance.diagonal().copy_(2 * variance)
    within_class = 2 * variance * counts / (counts - 1).clamp_min(1)
    start = within_class.sum() / (counts > 1).sum().clamp_min(1)
    thresholds = start + torch.arange(levels + 1).to(start) * (4 - start) / levels
    level = torch.searchsorted(thresholds, ops.special.single_linkage_distance(class_distance), right=True).clamp_max(
        levels
    )
    return ClassTree(class_ids, within_class, class_distance, thresholds, thresholds[level])


@loss(
    "hierarchical_triplet",
    title="Hierarchical triplet",
    family="ranking",
    per_query=True,
    paper="Ge, Huang, Dong, Scott: Deep metric learning with hierarchical triplet loss (2018)",
    geometry="sqeuclidean",
    references="batch",
    known_as=("HTL",),
)
class HierarchicalTriplet(nn.Module):
    """Triplet loss whose margin follows a tree of the classes: near classes get a small one, far classes a large one.

    L = ½ mean_{(a,p,n)} [d²_ap − d²_an + α_an]₊, α_an = β + d_H − s_a: d_H the threshold of the lowest level at which
    the classes of a and n are merged, s_a the mean squared distance inside the class of a.
    `build_tree(embeddings, labels)` builds the tree of the training set, in training every epoch; until then α is
    the constant `margin`. The tree is part of the state.
    """

    class_ids: Tensor
    within_class: Tensor
    merged_at: Tensor

    def __init__(self, *, beta: float = 0.1, levels: int = 16, margin: float = 0.2) -> None:
        super().__init__()
        if levels < 1:
            raise EquimetricError(f"the class tree needs at least one level, got levels={levels}")
        self.beta, self.levels, self.margin = beta, levels, margin
        self.register_buffer("class_ids", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("within_class", torch.zeros(0))
        self.register_buffer("merged_at", torch.zeros(0, 0))

    @torch.no_grad()
    def build_tree(self, embeddings: Tensor, labels: Tensor) -> ClassTree:
        """Set the margins from the embeddings of the training set, and return its tree."""
        if not len(labels) or labels.shape != embeddings.shape[:1]:
            raise EquimetricError(
                "a class tree needs one class id for each of at least one embedding, "
                f"got {tuple(labels.shape)} for {tuple(embeddings.shape)}"
            )
        tree = build_class_tree(embeddings, labels, self.levels)
        device, dtype = self.within_class.device, self.within_class.dtype
        self.class_ids = tree.class_ids.to(device)
        self.within_class = tree.within_class.to(device, dtype)
        self.merged_at = tree.merged_at.to(device, dtype)
        return tree

    def on_epoch(self, embeddings: Callable[[], Tensor], labels: Tensor) -> None:
        """Renew the tree from the embeddings of the training set."""
        self.build_tree(embeddings(), labels)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        # A saved tree may have any number of classes.
        for name in ("class_ids", "within_class", "merged_at"):
            if prefix + name in state_dict:
                setattr(self, name, getattr(self, name).new_empty(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def margins(self, pairs: Pairs) -> Tensor | float:
        """(B, B) α of every anchor and negative."""
        if not len(self.class_ids):
            return self.margin
        ops.require.square_batch(pairs, "hierarchical_triplet")
        labels = ops.require.class_labels(pairs, "hierarchical_triplet")
        index = torch.searchsorted(self.class_ids, labels).clamp_max(len(self.class_ids) - 1)
        unknown = labels[self.class_ids[index] != labels]
        if len(unknown):
            raise EquimetricError(f"class {int(unknown[0])} is not in the tree; build it from all training classes")
        margins = self.beta + self.merged_at[index][:, index] - self.within_class[index][:, None]
        return margins.to(pairs.similarity)

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of all triplets."""
        # A margin per anchor and negative is a shift of that negative's similarity.
        shifted = torch.where(pairs.negative, pairs.similarity + self.margins(pairs), pairs.similarity)
        return ops.triplet_sum(pairs.replace(similarity=shifted), 0.0, reduction="mean") / 2
