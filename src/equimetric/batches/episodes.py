"""Episodes: a few classes, each with support and query samples."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from equimetric.batches.base import Batches, draw_samples, require_at_least
from equimetric.batches.registry import batches
from equimetric.errors import EquimetricError

__all__ = ["EpisodeBatches"]


@batches("episodes")
class EpisodeBatches(Batches):
    """Batches of `episodes` episodes: `nc` classes, each with `ns` support and `nq` query samples, disjoint.

    Rows are episode after episode, class after class, the support samples of a class before its queries:
    `batch.view(episodes, nc, ns + nq)`. Episodes draw their classes independently; with `class_replacement=False` no
    class of an epoch is drawn again until the shuffled classes are used up.

    Classes with fewer than ns + nq samples are left out, with a warning. If fewer than nc remain, all classes of two
    or more samples are used, and small ones repeat samples, still with support and queries disjoint.
    """

    def __init__(
        self,
        labels: Tensor,
        *,
        nc: int = 12,
        ns: int = 5,
        nq: int = 5,
        episodes: int = 1,
        batches: int = 100,
        class_replacement: bool = True,
        seed: int = 0,
    ) -> None:
        require_at_least(1, nc=nc, ns=ns, nq=nq, episodes=episodes)
        super().__init__(labels, units_per_batch=episodes, samples_per_unit=nc * (ns + nq), batches=batches, seed=seed)
        self.require_classes(nc, "nc")
        self.nc, self.ns, self.nq = nc, ns, nq
        self.class_replacement = class_replacement
        self.usable = usable_classes([len(members) for members in self.members], nc, ns + nq)

    @classmethod
    def shape_options(cls, classes: int, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:
        """Classes divided among the episodes, samples into support and queries, half each unless `ns` is given."""
        episodes, ns = options.get("episodes", 1), options.get("ns", samples // 2)
        if classes % episodes:
            raise EquimetricError(
                f"{classes} classes cannot be shared equally by {episodes} episodes; "
                f"set batch.classes to a multiple of {episodes}"
            )
        if not 0 < ns < samples:
            raise EquimetricError(
                f"{samples} samples of a class cannot be {ns} for support and the rest queries; set batch.samples to "
                "2 or more, and ns below it"
            )
        return {"nc": classes // episodes, "ns": ns, "nq": samples - ns}

    def units(self, index: int) -> Tensor:
        """(episodes, nc · (ns + nq)) indices, an episode in each row."""
        generator = self.batch_generator(index)
        first = index * self.units_per_batch
        episodes = range(first, first + self.units_per_batch)
        return torch.stack([self.episode(episode, generator) for episode in episodes])

    def episode(self, index: int, generator: torch.Generator) -> Tensor:
        """(nc · (ns + nq),) indices of one episode."""
        if self.class_replacement:
            chosen = torch.randperm(len(self.usable), generator=generator)[: self.nc]
        else:
            chosen = self.epoch_sample(len(self.usable), self.nc, index)
        members = [self.members[self.usable[c]] for c in chosen.tolist()]
        return torch.cat([self.support_and_queries(class_members, generator) for class_members in members])

    def support_and_queries(self, members: Tensor, generator: torch.Generator) -> Tensor:
        """(ns + nq,) samples of a class; a small class is split in the same proportion and repeats samples."""
        shuffled = members[torch.randperm(len(members), generator=generator)]
        proportional = round(len(members) * self.ns / (self.ns + self.nq))
        split = self.ns if len(members) >= self.ns + self.nq else min(max(proportional, 1), len(members) - 1)
        support, queries = shuffled[:split], shuffled[split:]
        return torch.cat([draw_samples(support, self.ns, generator), draw_samples(queries, self.nq, generator)])


def usable_classes(sizes: list[int], needed: int, samples: int) -> list[int]:
    """Classes with enough samples or, where these are too few, all with two samples or more."""
    large = [c for c, size in enumerate(sizes) if size >= samples]
    if len(large) == len(sizes):
        return large
    if len(large) >= needed:
        warnings.warn(
            f"{len(sizes) - len(large)} of {len(sizes)} classes have fewer than {samples} samples and are left out "
            "of all episodes",
            stacklevel=3,
        )
        return large
    pairs = [c for c, size in enumerate(sizes) if size >= 2]
    if len(pairs) < needed:
        raise EquimetricError(
            f"episodes of {needed} classes need as many classes with two samples or more, but there are {len(pairs)}; "
            f"set nc to {len(pairs)} or fewer"
        )
    warnings.warn(
        f"only {len(large)} classes have {samples} samples, fewer than the {needed} of an episode: {len(pairs)} "
        "classes are used and small ones repeat samples",
        stacklevel=3,
    )
    return pairs
