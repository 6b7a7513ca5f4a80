"""DREML: members that classify by random groups of classes, each by groups of its own."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from equimetric import ops
from equimetric.components import loss
from equimetric.losses.members import EXEMPT, equal_sizes, member_slices
from equimetric.losses.proxy_nca import proxy_nca
from equimetric.losses.softmax import softmax
from equimetric.option_values import NonNegativeInt, PositiveFloat, PositiveInt
from equimetric.pairs import Pairs
from equimetric.seeding import derive_seed


@loss(
    "dreml",
    title="DREML",
    family="ensemble",
    per_query=True,
    paper="Xuan, Souvenir, Pless: Deep randomized ensembles for metric learning (2018)",
    geometry="none",
    references="batch",
    takes="batch",
    exempt=EXEMPT,
)
class RandomizedMembers(nn.Module):
    """Each member of an ensemble classifies by meta-classes, into which the classes are grouped at random.

    L = Σ_m mean_i −log softmax(f_m(x_i))_{g_m(y_i)}, f_m the D_m outputs of member m as they are, g_m a random map of
    the classes onto D_m meta-classes of sizes as equal as possible. With proxies='learned' it is the ProxyNCA loss of
    the unit vectors against learned meta-class proxies instead, with `embedding_multiplier`. The embedding of dimension
    `dim` is that of the members one after the other, in equal parts; labels are class ids 0 … classes − 1. In the
    method as published each member is a network by itself.
    """

    meta_classes: Tensor

    def __init__(
        self,
        *,
        classes: PositiveInt,
        dim: PositiveInt,
        members: PositiveInt = 12,
        proxies: Literal["static", "learned"] = "static",
        embedding_multiplier: PositiveFloat = 3.0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        self.sizes = equal_sizes(dim, members, "dreml")
        self.embedding_multiplier = embedding_multiplier
        self.seed = seed
        self.register_buffer("meta_classes", balanced_maps(classes, self.sizes, seed))
        learned = [nn.Parameter(torch.randn(size, size)) for size in self.sizes]
        self.proxies = nn.ParameterList(learned if proxies == "learned" else [])

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of a batch."""
        labels = ops.require.class_labels(pairs, "dreml", classes=len(self.meta_classes))
        outputs = member_slices(ops.require.queries(pairs, "dreml").embeddings, self.sizes, "dreml")
        targets = self.meta_classes[labels].unbind(1)
        return torch.stack(
            [self.member_loss(m, *arguments) for m, arguments in enumerate(zip(outputs, targets, strict=True))]
        ).sum(0)

    def proxy_sets(self) -> list[tuple[Tensor, Tensor]]:
        """The learned proxies of each member that stand for meta-classes of some class, and which these are."""
        used = [torch.unique(meta_classes) for meta_classes in self.meta_classes.unbind(1)]
        return [(proxies[rows], rows) for proxies, rows in zip(self.proxies, used, strict=False)]

    def member_loss(self, index: int, output: Tensor, target: Tensor) -> Tensor:
        """The loss of one member, from its (B, D) outputs and the meta-classes of the samples."""
        positive = torch.nn.functional.one_hot(target, output.shape[1]).bool()
        if not len(self.proxies):
            return softmax(Pairs(output, positive, ~positive, target=target))
        proxies = self.proxies[index]
        dtype = torch.promote_types(output.dtype, proxies.dtype)
        cosine = ops.unit(output.to(dtype)) @ ops.unit(proxies.to(dtype)).T
        compared = Pairs(cosine, positive, ~positive, target=target)
        return proxy_nca(compared, embedding_multiplier=self.embedding_multiplier)


def balanced_maps(classes: int, groups: Sequence[int], seed: int) -> Tensor:
    """(classes, members) the group of each class for every member, each drawn by itself."""
    maps = [balanced_map(classes, count, derive_seed(seed, "meta-classes", m)) for m, count in enumerate(groups)]
    return torch.stack(maps, 1)


def balanced_map(classes: int, groups: int, seed: int) -> Tensor:
    """(classes,) a group for each class, at random, with group sizes that differ by one at most."""
    generator = torch.Generator().manual_seed(seed)
    rounds = -(-classes // groups)
    groups_drawn = torch.cat([torch.randperm(groups, generator=generator) for _ in range(rounds)])[:classes]
    return groups_drawn[torch.randperm(classes, generator=generator)]
