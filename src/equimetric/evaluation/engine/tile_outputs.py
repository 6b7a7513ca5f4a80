"""Lists that grow from tile to tile: joined in the order of the tiles, whichever process read them."""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["TileOutputs", "concatenate"]


class TileOutputs:
    """Tuples of tensors, such as the distances and classes of some pairs, with the numbers of their tiles."""

    def __init__(self) -> None:
        self.parts: list[tuple[tuple[int, int], tuple[Tensor, ...]]] = []

    def add(self, tile_number: tuple[int, int], *part: Tensor) -> None:
        """Append the output of one tile."""
        self.parts.append((tile_number, part))

    def merge(self, other: "TileOutputs") -> None:
        """Append the outputs of other tiles."""
        self.parts += other.parts

    def join(self) -> tuple[Tensor, ...]:
        """All parts as one, by tile; the list is empty then."""
        # Stable: a tile may have several outputs.
        joined = concatenate([part for _, part in sorted(self.parts, key=lambda entry: entry[0])])
        self.parts.clear()
        return joined


def concatenate(parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Tensors of several blocks, the first with the first, …"""
    return tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))
