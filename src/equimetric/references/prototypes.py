"""Class means of a support set as references: nothing is learned, every batch is an episode."""

from collections.abc import Callable

import torch
from torch import Tensor

from equimetric.components import references
from equimetric.errors import EquimetricError
from equimetric.geometry import Geometry, unit
from equimetric.option_values import Count
from equimetric.pairs import Pairs, Queries
from equimetric.references.batch import compare
from equimetric.references.kind import Given, References
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
    least one; the rest are queries. A class without a row left still has a prototype. With `episodes` > 1 the batch is
    that many consecutive parts of equal size, queries meet the prototypes of their own part alone, and the loss is the
    mean over the parts. Where `nc` or `nq` is given, every part must have as many classes, every class as many queries.
    An explicit reference set is taken as the support, the whole batch as queries. Means are not scaled to unit length.
    """

    def __init__(
        self, *, ns: Count | None = None, nq: Count | None = None, nc: Count | None = None, episodes: Count = 1
    ) -> None:
        super().__init__()
        self.ns, self.nq, self.nc = ns, nq, nc
        self.episodes = episodes

    def forward(self, geometry: Geometry, normalize: bool, given: Given) -> Pairs:
        """Make the pairs of queries and prototypes."""
        if given.self_mask is not None:
            raise EquimetricError("support and queries are different samples; leave self_mask out")
        embeddings = check_embeddings(given.embeddings)
        labels = check_class_ids(given.labels, embeddings)
        reference_embeddings, reference_labels = given.reference_embeddings, given.reference_labels
        if normalize:
            embeddings = unit(embeddings)
        if reference_embeddings is not None and reference_labels is not None:
            support = check_embeddings(reference_embeddings, "reference_embeddings").to(embeddings)
            support_labels = check_class_ids(reference_labels, support, "reference_labels")
            classes, group = torch.unique(support_labels, return_inverse=True)
            means = group_means(unit(support) if normalize else support, group, len(classes))
            return compare(geometry, Queries(embeddings, labels, given.index), labels, means, classes)
        if reference_embeddings is not None or reference_labels is not None:
            raise EquimetricError("an explicit support set needs both reference_embeddings and reference_labels")
        return self.split(geometry, embeddings, labels, given.index)

    def split(self, geometry: Geometry, embeddings: Tensor, labels: Tensor, index: Tensor | None) -> Pairs:
        """Pairs of the queries and prototypes that the batch itself provides."""
        number = len(labels)
        if number % self.episodes:
            raise EquimetricError(
                f"a batch of {number} cannot be cut into {self.episodes} equal episodes; change episodes=… or the batch"
            )
        episode = torch.arange(number, device=labels.device) // max(1, number // self.episodes)
        # A group is one class in one episode.
        rows = torch.stack([episode, labels], 1)
        groups, group, sizes = torch.unique(rows, dim=0, return_inverse=True, return_counts=True)
        self.check_episodes(groups[:, 0], sizes)
        half = (sizes // 2).clamp_min(1)
        wanted = half if self.ns is None else torch.full_like(sizes, self.ns)
        is_support = place_in_group(group, sizes) < wanted[group]
        means = group_means(embeddings[is_support], group[is_support], len(groups))

        asked = ~is_support
        queries = Queries(embeddings[asked], labels[asked], None if index is None else index[asked])
        pairs = compare(geometry, queries, labels[asked], means, groups[:, 1])
        together = episode[asked][:, None] == groups[None, :, 0]
        return pairs.keep(positive=together, negative=together)

    def check_episodes(self, episode: Tensor, sizes: Tensor) -> None:
        """Refuse episodes of other sizes than said, given the episode and the number of rows of each class in it."""
        classes = torch.bincount(episode, minlength=self.episodes)
        if self.nc is not None and bool((classes != self.nc).any()):
            raise EquimetricError(f"an episode must have nc={self.nc} classes, this batch has {classes.tolist()}")
        rows = None if self.nq is None else self.nq + (sizes // 2 if self.ns is None else self.ns)
        if rows is not None and bool((sizes != rows).any()):
            raise EquimetricError(
                f"a class must have ns={self.ns or 'half'} support rows and nq={self.nq} queries, "
                f"but the classes of this batch have {sorted(set(sizes.tolist()))} rows"
            )

    def objective_value(self, loss: Callable[[Pairs], Tensor], pairs: Pairs) -> Tensor:
        """The mean of the losses of the episodes that have queries."""
        if self.episodes == 1 or not len(pairs.similarity):
            return loss(pairs)
        # Queries stand in order of their episodes, which differ in the first class that a query is compared with.
        _, numbers = torch.unique_consecutive(pairs.any.to(torch.uint8).argmax(1), return_counts=True)
        if bool((numbers == numbers[0]).all()):
            return loss(pairs)
        ends = numbers.cumsum(0).tolist()
        parts = [slice(end - number, end) for end, number in zip(ends, numbers.tolist(), strict=True)]
        values = [loss(pairs.rows(rows, pairs.similarity[rows])) for rows in parts]
        return torch.stack(values).mean() if values[0].ndim == 0 else torch.cat(values)

    def extra_repr(self) -> str:
        """Options, for `repr`."""
        return f"ns={self.ns}, nq={self.nq}, nc={self.nc}, episodes={self.episodes}"


def place_in_group(group: Tensor, sizes: Tensor) -> Tensor:
    """(B,) how many earlier rows belong to the same group."""
    order = group.argsort(stable=True)
    start = sizes.cumsum(0) - sizes
    place = torch.empty_like(group)
    place[order] = torch.arange(len(group), device=group.device) - start[group[order]]
    return place


def group_means(embeddings: Tensor, group: Tensor, groups: int) -> Tensor:
    """(groups, D) mean of the rows of each group, as a product: a scatter would not be deterministic everywhere."""
    member = (group[None, :] == torch.arange(groups, device=group.device)[:, None]).to(embeddings)
    return member @ embeddings / member.sum(1, keepdim=True)
