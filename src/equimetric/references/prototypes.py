"""Class means of a support set as references: nothing is learned, every batch is an episode."""

import torch
from torch import Tensor

from equimetric.components import references
from equimetric.errors import EquimetricError
from equimetric.geometry import Geometry, unit
from equimetric.ops.ratios import divide
from equimetric.option_values import PositiveInt
from equimetric.pairs import Pairs, Queries
from equimetric.references.base import ObjectiveInputs, PairTerms, References
from equimetric.references.batch import make_pairs
from equimetric.references.relation import check_class_ids, check_embeddings
from equimetric.search_space import Choice

__all__ = ["PrototypeReferences"]


@references(
    "prototypes",
    paper="Snell, Swersky, Zemel: Prototypical networks for few-shot learning (2017)",
    search={"ns": Choice((2, 5))},
    exempt={
        "permutation": "the first rows of a class are its support",
        "static shapes": "the number of queries depends on the labels",
    },
)
class PrototypeReferences(References):
    """Queries are compared with the mean embedding of each class's support samples, μ_c = mean_{support of c} x.

    The first `ns` rows of each class in the batch are its support, by default half of its rows, rounded down but at
    least one; the rest are queries. A class without queries still has a prototype. With `episodes` > 1 the batch is
    that many consecutive parts of equal size, queries are compared with the prototypes of their own part, and the loss
    is the mean over the parts. `nc` and `nq` require that many classes in every part and queries in every class.
    An explicit reference set is the support, and the whole batch are queries. Means are not scaled to unit length;
    where samples have weights, they are weighted means.
    """

    def __init__(
        self,
        *,
        ns: PositiveInt | None = None,
        nq: PositiveInt | None = None,
        nc: PositiveInt | None = None,
        episodes: PositiveInt = 1,
    ) -> None:
        super().__init__()
        self.ns, self.nq, self.nc = ns, nq, nc
        self.episodes = episodes

    def forward(self, geometry: Geometry, normalize: bool, inputs: ObjectiveInputs) -> PairTerms:
        """Make the pairs of queries and prototypes; one set of pairs for each episode where their sizes differ."""
        if inputs.self_mask is not None:
            raise EquimetricError("support and queries are different samples; leave self_mask out")
        embeddings = check_embeddings(inputs.embeddings)
        labels = check_class_ids(inputs.labels, embeddings)
        if normalize:
            embeddings = unit(embeddings)
        reference_embeddings, reference_labels = inputs.reference_embeddings, inputs.reference_labels
        if reference_embeddings is None and reference_labels is None:
            return self.split_batch(geometry, Queries(embeddings, labels, inputs.index, weight=inputs.sample_weight))
        if reference_embeddings is None or reference_labels is None:
            raise EquimetricError("an explicit support set needs both reference_embeddings and reference_labels")
        support = check_embeddings(reference_embeddings, "reference_embeddings").to(embeddings)
        support_labels = check_class_ids(reference_labels, support, "reference_labels")
        classes, group = torch.unique(support_labels, return_inverse=True)
        weight = inputs.reference_weight
        means, present = group_means(unit(support) if normalize else support, group, len(classes), weight)
        queries = Queries(embeddings, labels, inputs.index, weight=inputs.sample_weight)
        return PairTerms([(1.0, make_pairs(geometry, queries, labels, means, classes, reference_weight=present))])

    def split_batch(self, geometry: Geometry, batch: Queries) -> PairTerms:
        """Split the batch into support and queries and make their pairs."""
        embeddings, labels, index, weight = batch.embeddings, batch.labels, batch.index, batch.weight
        assert labels is not None
        num_rows = len(labels)
        if num_rows % self.episodes:
            raise EquimetricError(
                f"a batch of {num_rows} cannot be cut into {self.episodes} equal episodes; "
                "change episodes=… or the batch"
            )
        episode = torch.arange(num_rows, device=labels.device) // max(1, num_rows // self.episodes)
        # A group is one class in one episode.
        rows = torch.stack([episode, labels], 1)
        groups, group, sizes = torch.unique(rows, dim=0, return_inverse=True, return_counts=True)
        self.check_episodes(groups[:, 0], sizes)
        half = (sizes // 2).clamp_min(1)
        support_size = half if self.ns is None else torch.full_like(sizes, self.ns)
        is_support = rank_in_group(group, sizes) < support_size[group]
        support_weight = None if weight is None else weight[is_support]
        means, present = group_means(embeddings[is_support], group[is_support], len(groups), support_weight)

        is_query = ~is_support
        queries = Queries(
            embeddings[is_query],
            labels[is_query],
            None if index is None else index[is_query],
            weight=None if weight is None else weight[is_query],
        )
        pairs = make_pairs(geometry, queries, labels[is_query], means, groups[:, 1], reference_weight=present)
        same_episode = episode[is_query][:, None] == groups[None, :, 0]
        pairs = pairs.keep(positive=same_episode, negative=same_episode)
        return split_episodes(pairs, episode[is_query]) if self.episodes > 1 else PairTerms([(1.0, pairs)])

    def check_episodes(self, episode: Tensor, sizes: Tensor) -> None:
        """Raise an error where nc or nq is not met, given the episode and the number of rows of each group."""
        classes = torch.bincount(episode, minlength=self.episodes)
        if self.nc is not None and bool((classes != self.nc).any()):
            raise EquimetricError(f"an episode must have nc={self.nc} classes, this batch has {classes.tolist()}")
        rows = None if self.nq is None else self.nq + (sizes // 2 if self.ns is None else self.ns)
        if rows is not None and bool((sizes != rows).any()):
            raise EquimetricError(
                f"a class must have ns={self.ns or 'half'} support rows and nq={self.nq} queries, "
                f"but the classes of this batch have {sorted(set(sizes.tolist()))} rows"
            )

    def extra_repr(self) -> str:
        """Options, for `repr`."""
        return f"ns={self.ns}, nq={self.nq}, nc={self.nc}, episodes={self.episodes}"


def split_episodes(pairs: Pairs, episode: Tensor) -> PairTerms:
    """The pairs of each episode that has queries, with equal weights; all together where that is the same."""
    _, counts = torch.unique_consecutive(episode, return_counts=True)
    if not len(counts) or bool((counts == counts[0]).all()):
        return PairTerms([(1.0, pairs)])
    ends = counts.cumsum(0).tolist()
    parts = [slice(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]
    return PairTerms([(1 / len(parts), pairs.rows(rows, pairs.similarity[rows])) for rows in parts])


def rank_in_group(group: Tensor, sizes: Tensor) -> Tensor:
    """(B,) number of earlier rows of the same group."""
    order = group.argsort(stable=True)
    start = sizes.cumsum(0) - sizes
    position = torch.empty_like(group)
    position[order] = torch.arange(len(group), device=group.device) - start[group[order]]
    return position


def group_means(
    embeddings: Tensor, group: Tensor, groups: int, weight: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """(groups, D) mean of the rows of each group, as a product: a scatter would not be deterministic everywhere.

    With (N,) weights of the rows also (groups,) 1 where a group has any weight, else 0.
    """
    member = (group[None, :] == torch.arange(groups, device=group.device)[:, None]).to(embeddings)
    if weight is None:
        return member @ embeddings / member.sum(1, keepdim=True), None
    member = member * weight
    counts = member.sum(1, keepdim=True)
    return divide(member @ embeddings, counts), (counts[:, 0] > 0).to(embeddings)
