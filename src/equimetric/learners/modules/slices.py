"""An embedding made of concatenated named members, and their declared aggregation.

A linear head of d₁ + … + d_M outputs is M linear heads; its slices are the members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.geometry import unit

__all__ = ["Slices", "aggregate", "require_sizes", "split_evenly"]


@dataclass(frozen=True)
class Slices:
    """Names and sizes of the members of a (B, d₁ + … + d_M) embedding, in order."""

    sizes: Mapping[str, int]

    @classmethod
    def equal(cls, dim: int, count: int, name: str = "member") -> Slices:
        """`count` members that share `dim` dimensions, the first ones with one more where they do not divide evenly."""
        return cls.from_sizes(split_evenly(dim, count), name)

    @classmethod
    def from_sizes(cls, sizes: Sequence[int], name: str = "member") -> Slices:
        """Members of these sizes, numbered."""
        return cls({f"{name}{index}": size for index, size in enumerate(sizes, start=1)})

    @property
    def dim(self) -> int:
        """Total dimensions."""
        return sum(self.sizes.values())

    def split(self, embedding: Tensor) -> dict[str, Tensor]:
        """(B, D) → (B, d) by name."""
        if embedding.shape[1] != self.dim:
            raise EquimetricError(f"members of {self.dim} dimensions do not fit embeddings {tuple(embedding.shape)}")
        return dict(zip(self.sizes, torch.split(embedding, list(self.sizes.values()), dim=1), strict=True))


def split_evenly(dim: int, count: int) -> list[int]:
    """Sizes of `count` members with `dim` dimensions together, as equal as they can be."""
    if not 1 <= count <= dim:
        raise EquimetricError(f"{dim} dimensions cannot be shared by {count} members; each needs at least one")
    return [dim // count + (index < dim % count) for index in range(count)]


def require_sizes(option: str, sizes: Sequence[int]) -> None:
    """Raise an error unless an option is a list of one or more dimensions."""
    values = sizes if isinstance(sizes, Sequence) else ()
    if not values or not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in values):
        raise EquimetricError(f"{option} must be a list of whole numbers of 1 or more, got {sizes!r}")


def aggregate(members: Sequence[Tensor], weights: Sequence[float] | None = None) -> Tensor:
    """(B, Σd) concatenated members of unit length, each times its weight.

    The cosine of two such vectors is the mean of the members' cosines by the squares of the weights.
    """
    if weights is None:
        weights = [1.0] * len(members)
    return torch.cat([weight * unit(member) for weight, member in zip(weights, members, strict=True)], dim=1)
