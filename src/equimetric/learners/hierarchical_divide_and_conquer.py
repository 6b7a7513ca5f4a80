"""Hierarchical divide and conquer: clusters split in two again and again, and masks choose their dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.errors import EquimetricError
from equimetric.geometry import unit
from equimetric.learners.batch import Batch, Task
from equimetric.learners.epoch_view import EpochView
from equimetric.learners.learner import DelayedStart, LearnerFactory, Outputs, learner
from equimetric.learners.modules.clusters import cluster, cluster_tasks, mask_singletons
from equimetric.learners.modules.networks import objective_terms
from equimetric.learners.modules.phases import Phases
from equimetric.learners.modules.single_network import SingleNetworkLearner
from equimetric.learners.single import refuse_epoch_hooks
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.ops.kmeans import kmeans
from equimetric.option_values import NonNegativeFloat, PositiveInt, UnitFraction
from equimetric.seeding import derive_seed

__all__ = ["HierarchicalDivideAndConquer", "Masks", "split_cluster"]

EMBEDDING = "embedding"
ATTEMPTS = 30
"""Attempts to split a cluster into two halves that both can be trained on."""


class Masks(nn.Module):
    """K masks over D dimensions, as many as there are clusters in the end; ReLU(mask) weighs the dimensions.

    While there are n clusters, cluster c has mask c·K/n: its first half keeps this mask, and the second half takes a
    copy of it to place (2c + 1)·K/2n. Fixed masks are 1 for the dimensions D·c/n … D·(c + 1)/n and 0 elsewhere, so a
    split halves them; learned ones start at 1.
    """

    def __init__(self, count: int, dim: int, learned: bool) -> None:
        super().__init__()
        self.learned = learned
        self.values = nn.Parameter(torch.ones(count, dim), requires_grad=learned)

    def __len__(self) -> int:
        return len(self.values)

    def of(self, clusters: int) -> Tensor:
        """(clusters, D) masks at this number of clusters, none of them negative."""
        return self.values[:: len(self) // clusters].relu()

    @torch.no_grad()
    def split(self, clusters: int) -> None:
        """Give both halves of each of `clusters` clusters a mask."""
        stride = len(self) // clusters
        if self.learned:
            self.values[stride // 2 :: stride] = self.values[::stride]
        else:
            self.values[:: stride // 2] = halves(2 * clusters, self.values.shape[1]).to(self.values)

    def penalty(self, clusters: int) -> Tensor:
        """Mean cosine of two different masks: 0 where they are orthogonal."""
        directions = unit(self.of(clusters))
        cosines = directions @ directions.T
        return (cosines.sum() - cosines.diagonal().sum()) / max(clusters * (clusters - 1), 1)


def halves(count: int, dim: int) -> Tensor:
    """(count, D) masks that share the dimensions in order: those of 2·count split each of these in two."""
    bounds = torch.arange(count + 1) * dim // count
    position = torch.arange(dim)
    return ((position >= bounds[:-1, None]) & (position < bounds[1:, None])).float()


@learner(
    "hierarchical_divide_and_conquer",
    paper="Sanakoyeu, Ma, Tschernezki, Ommer: Improving deep metric learning by divide and conquer (2021)",
)
class HierarchicalDivideAndConquer(SingleNetworkLearner):
    """Clusters of the training set that split in two in every period, up to K, each with a mask over the embedding.

    A batch of cluster c trains n(ReLU(mask_c) ⊙ f(x)), and learned masks are pushed to be orthogonal. All clusters
    share one objective. After each split the trunk stands still for a while, and only head and masks move. In the
    joint phase at the end batches still come from clusters and train the whole embedding, which is evaluated.
    """

    clusters: Tensor
    drawn: Tensor
    labels: Tensor
    count: Tensor
    joint: Tensor

    def __init__(
        self,
        network: EmbeddingNetwork,
        objective: Objective | ObjectiveSum,
        masks: Masks,
        *,
        images: int,
        weight: float,
        still: float,
        phases: Phases,
        seed: int,
    ) -> None:
        super().__init__(network)
        self.objective = objective
        refuse_epoch_hooks(objective, "hierarchical_divide_and_conquer")
        self.masks = masks
        self.weight, self.still, self.phases, self.seed = weight, still, phases, seed
        self.period = phases.period
        for name in ("clusters", "drawn", "labels"):
            self.register_buffer(name, torch.full((images,), -1))
        self.register_buffer("count", torch.tensor(1))
        self.register_buffer("joint", torch.tensor(False))

    @classmethod
    def build(
        cls,
        factory: LearnerFactory,
        *,
        clusters: PositiveInt = 16,
        masks: Literal["fixed", "learned"] = "fixed",
        weight: NonNegativeFloat = 0.01,
        still: UnitFraction = 0.5,
        period: PositiveInt | None = None,
        joint: UnitFraction = 0.55,
    ) -> HierarchicalDivideAndConquer:
        """Up to `clusters` clusters, a power of two.

        masks    fixed: each split halves the dimensions; learned: each split copies the mask
        weight   of the orthogonality of learned masks
        still    share of a period after a split in which the trunk stands still
        period   steps between splits; by default those between validations
        joint    share of the steps at the end that train the whole embedding
        """
        if masks not in ("fixed", "learned"):
            raise EquimetricError(f"masks are 'fixed' or 'learned', not {masks!r}")
        if clusters & (clusters - 1) or clusters > factory.dim:
            raise EquimetricError(
                f"{clusters} clusters do not come from splitting in two over {factory.dim} dimensions; choose a power "
                "of two, at most the dimension"
            )
        return cls(
            factory.network(),
            factory.objective(),
            Masks(clusters, factory.dim, masks == "learned"),
            images=factory.images,
            weight=weight,
            still=still,
            phases=Phases.from_factory(factory, period, joint),
            seed=factory.seed,
        )

    @property
    def trunk_frozen(self) -> bool:
        """Whether the trunk is not trained in this step: the first ones after a split."""
        period = self.phases.period
        return bool(self.count > 1) and not self.joint and self.step % period < self.still * period

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """(B, D) embeddings, not normalised."""
        features = self.network.features(batch.images)
        if self.training and self.trunk_frozen:
            features = features.detach()
        return {EMBEDDING: self.network.head(features)}

    def embedding(self, outputs: Outputs) -> Tensor:
        """The whole embedding, without masks."""
        return self.normalize(outputs[EMBEDDING])

    def members(self, outputs: Outputs) -> dict[str, Tensor]:
        """The embedding through the mask of every current cluster."""
        masks = self.masks.of(int(self.count))
        return {f"mask{index}": unit(outputs[EMBEDDING] * mask) for index, mask in enumerate(masks, start=1)}

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The terms of the masked embedding and the masks' orthogonality, or those of the whole embedding."""
        masks = dict(zip(self.names(), self.masks.of(int(self.count)), strict=True))
        if self.joint or batch.task not in masks:
            return objective_terms(self.objective, outputs[EMBEDDING], batch)
        terms = objective_terms(self.objective, outputs[EMBEDDING] * masks[batch.task], batch)
        if self.masks.learned:
            terms = {**terms, "orthogonality": self.weight * self.masks.penalty(int(self.count))}
        return terms

    def names(self) -> Iterator[str]:
        """Names of the current clusters."""
        return (f"cluster{index}" for index in range(1, int(self.count) + 1))

    def training_only(self) -> Iterable[nn.Module]:
        """The objective and the masks."""
        return [*super().training_only(), self.masks]

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk and head, learned masks as "masks", and the parameters of the objective."""
        groups = {**self.network.parameter_groups(), "objective": self.objective.parameters()}
        return {**groups, "masks": self.masks.parameters()} if self.masks.learned else groups

    def tasks(self) -> Sequence[Task]:
        """One task for every cluster of two classes or more; one for all classes before the first clustering."""
        return cluster_tasks(self.names(), self.drawn, self.labels) or (Task(),)

    def on_epoch(self, view: EpochView) -> None:
        """Cluster again with the same numbering, then split every cluster in two until there are K."""
        self.joint.fill_(self.phases.is_joint(self.step))
        if self.joint:
            return
        points, labels, previous = unit(view.features()), view.labels.cpu(), self.clusters.cpu()
        seed, count = derive_seed(self.seed, "clusters", self.step), int(self.count)
        if bool((previous < 0).all()):
            clusters = torch.zeros_like(previous)
        else:
            clusters = cluster(points, count, seed=seed, previous=previous).cpu()
            if count < len(self.masks):
                clusters = split_clusters(points, labels, clusters, count, seed)
                self.masks.split(count)
                self.count.fill_(2 * count)
        self.clusters.copy_(clusters)
        self.labels.copy_(labels)
        self.drawn.copy_(mask_singletons(clusters, labels))

    def delayed_starts(self) -> list[DelayedStart]:
        """The joint phase, and parts of the objective that begin later."""
        return [*super().delayed_starts(), self.phases.delayed_start()]


def split_clusters(points: Tensor, labels: Tensor, clusters: Tensor, count: int, seed: int) -> Tensor:
    """(N,) clusters, each of the first `count` split in two: cluster c becomes 2c and 2c + 1."""
    halved = 2 * clusters
    for c in range(count):
        rows = (clusters == c).nonzero()[:, 0]
        if len(rows) > 1:
            halved[rows] += split_cluster(points[rows], labels[rows], derive_seed(seed, "half", c))
    return halved


def split_cluster(points: Tensor, labels: Tensor, seed: int) -> Tensor:
    """(n,) 0 or 1 by 2-means, from other starts until both halves have two classes of two rows or more.

    Where no start gives such halves, those of the first stay.
    """
    first = None
    for attempt in range(ATTEMPTS):
        half = kmeans(points, 2, seed=derive_seed(seed, "attempt", attempt), iterations=100).assignment.cpu()
        first = half if first is None else first
        usable = mask_singletons(half, labels)
        if all(len(torch.unique(labels[usable == side])) > 1 for side in (0, 1)):
            return half
    assert first is not None
    return first
