"""Batches from a fixed set of triples, drawn once."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from equimetric.batches.base import Batches, require_at_least, require_samples
from equimetric.batches.registry import batches
from equimetric.errors import EquimetricError

__all__ = ["FixedTripletBatches"]


@batches("fixed_triplets")
class FixedTripletBatches(Batches):
    """Batches of triples from a set that is drawn once: to learn from triples alone, as if there were no labels.

    Rows a_1, p_1, n_1, a_2, p_2, n_2 …; with selection='triplet_rows' a loss sees these triples and no others. Each of
    the `set_size` triples has two random classes, two different samples of the first and one of the second. Every
    epoch shuffles the set. Classes of one sample have negatives only.
    """

    def __init__(
        self, labels: Tensor, *, triples: int, set_size: int = 10_000, batches: int | None = None, seed: int = 0
    ) -> None:
        require_at_least(1, triples=triples, set_size=set_size)
        if triples > set_size:
            raise EquimetricError(
                f"a batch of {triples} triples cannot be drawn from {set_size}; set the triples of a batch to "
                f"{set_size} or fewer, or raise set_size"
            )
        batches = set_size // triples if batches is None else batches
        super().__init__(labels, units_per_batch=triples, samples_per_unit=3, batches=batches, seed=seed)
        self.set_size = set_size
        self.sizes = torch.tensor([len(members) for members in self.members])
        self.usable = (self.sizes > 1).nonzero()[:, 0]
        if len(self.members) < 2 or not len(self.usable):
            raise EquimetricError("triples need at least two classes, one of them with two samples or more")
        self.current: tuple[int, Tensor] | None = None

    @classmethod
    def shape_options(cls, classes: int, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """A triple in place of each class."""
        require_samples(samples, 3, "a triple")
        return {"triples": classes}

    def units(self, index: int) -> Tensor:
        """(T, 3) anchor, positive and negative of each triple."""
        if self.current is None or self.current[0] != self.seed:
            self.current = (self.seed, self.draw_set())
        return self.current[1][self.epoch_sample(self.set_size, self.units_per_batch, index)]

    def draw_set(self) -> Tensor:
        """(set_size, 3) the fixed set, a function of the seed."""
        generator = self.generator("fixed triplets")

        def draw(below: Tensor | int) -> Tensor:
            """(set_size,) random whole numbers from 0 to below − 1."""
            return (torch.rand(self.set_size, generator=generator, dtype=torch.float64) * below).long()

        pos_class = self.usable[draw(len(self.usable))]
        neg_class = draw(len(self.members) - 1)
        neg_class = neg_class + (neg_class >= pos_class)
        anchor, positive = draw(self.sizes[pos_class]), draw(self.sizes[pos_class] - 1)
        positive = positive + (positive >= anchor)
        starts = self.sizes.cumsum(0) - self.sizes
        negative = draw(self.sizes[neg_class])
        indices = torch.stack(
            [starts[pos_class] + anchor, starts[pos_class] + positive, starts[neg_class] + negative], 1
        )
        return torch.cat(self.members)[indices]
