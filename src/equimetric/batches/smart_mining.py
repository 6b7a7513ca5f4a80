"""Smart mining: triples from the neighbours of each sample, at a difficulty that a controller keeps in bounds."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from equimetric.batches.base import draw_samples, require_at_least, require_samples
from equimetric.batches.mined import MinedBatches, nearest_neighbours
from equimetric.batches.registry import batches
from equimetric.errors import EquimetricError
from equimetric.geometry import unit

__all__ = ["SmartMiningBatches"]


@batches("smart_mining")
class SmartMiningBatches(MinedBatches):
    """Batches of triples from the nearest neighbours of each sample in the training set, after Harwood et al. (2017).

    Rows a_1, p_1, n_1, a_2, p_2, n_2 …; with selection='triplet_rows' a loss sees these triples and no others. Among
    the anchor's `neighbours` nearest samples, the negative is the first of another class from rank ρ on; the positive
    is a random sample of the anchor's class farther away than it, or else the farthest of five random ones. `record`
    counts the triples with a loss above zero: after every `interval` steps ρ grows by a tenth if their share is above
    0.8, and shrinks by a tenth, never below 1, if it is below 0.4. Every sample whose class has another one is an
    anchor once per pass.

    In training `observe` does the recording: a triple has a loss above zero where ‖a − n‖² − ‖a − p‖² < `margin` for
    embeddings of unit length, so the margin should be that of the loss.
    """

    adapts: ClassVar[bool] = True

    def __init__(
        self,
        labels: Tensor,
        *,
        triples: int,
        neighbours: int = 200,
        margin: float = 0.2,
        interval: int = 100,
        batches: int | None = None,
        seed: int = 0,
    ) -> None:
        require_at_least(1, triples=triples, neighbours=neighbours, interval=interval)
        super().__init__(labels, units_per_batch=triples, samples_per_unit=3, batches=batches, seed=seed)
        class_of = torch.unique(self.labels, return_inverse=True)[1]
        self.class_of: list[int] = class_of.tolist()
        sizes = torch.tensor([len(members) for members in self.members])
        self.anchors = (sizes[class_of] > 1).nonzero()[:, 0]
        if len(self.members) < 2 or not len(self.anchors):
            raise EquimetricError("triples need at least two classes, one of them with two samples or more")
        if triples > len(self.anchors):
            raise EquimetricError(
                f"a batch of {triples} triples cannot be drawn from {len(self.anchors)} samples whose class has "
                f"another; set triples to {len(self.anchors)} or fewer"
            )
        self.neighbours = min(neighbours, len(self.labels) - 1)
        self.margin = margin
        self.interval = interval
        self.rank = 1.0
        self.steps, self.active, self.recorded = 0, 0, 0
        if batches is None:
            self.batches = len(self.anchors) // triples

    @classmethod
    def shape_options(cls, classes: int, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """As many triples as C×M batches have classes."""
        require_samples(samples, 3, "a triple")
        return {"triples": classes}

    def mine(self, embeddings: Tensor) -> dict[str, Tensor]:
        """Nearest samples of each, by the distance of normalised embeddings."""
        embeddings = unit(embeddings)
        return {"neighbours": nearest_neighbours(embeddings, embeddings.square().sum(1), self.neighbours)}

    def units(self, index: int) -> Tensor:
        """(T, 3) anchor, positive and negative of each triple."""
        generator = self.batch_generator(index)
        anchors = self.anchors[self.epoch_sample(len(self.anchors), self.units_per_batch, index)]
        return torch.stack([self.triple(anchor, generator) for anchor in anchors.tolist()])

    def triple(self, anchor: int, generator: torch.Generator) -> Tensor:
        """(3,) an anchor with its positive and negative."""
        neighbours = self.get_mined("neighbours")[anchor]
        negative_ranks = (self.labels[neighbours] != self.labels[anchor]).nonzero()[:, 0]
        from_rank = negative_ranks[negative_ranks >= int(self.rank) - 1]
        if len(from_rank):
            rank = int(from_rank[0])
            negative = neighbours[rank]
        elif len(negative_ranks):
            rank = int(negative_ranks[-1])
            negative = neighbours[rank]
        else:
            # All neighbours are of the anchor's class: every other sample is farther away.
            rank = len(neighbours)
            all_negatives = (self.labels != self.labels[anchor]).nonzero()[:, 0]
            negative = draw_samples(all_negatives, 1, generator)[0]
        positive = self.positive(anchor, neighbours[:rank], generator)
        return torch.stack([torch.tensor(anchor), positive, negative])

    def positive(self, anchor: int, closer: Tensor, generator: torch.Generator) -> Tensor:
        """A random sample of the anchor's class outside `closer`, or else the farthest of five random ones."""
        class_members = self.members[self.class_of[anchor]]
        class_members = class_members[class_members != anchor]
        farther = class_members[~torch.isin(class_members, closer)]
        if len(farther):
            return draw_samples(farther, 1, generator)[0]
        candidates = draw_samples(class_members, min(5, len(class_members)), generator)
        return closer[torch.isin(closer, candidates)][-1]

    @torch.no_grad()
    def observe(self, embeddings: Tensor) -> None:
        """Record how many triples of the (3T, D) embeddings violate the margin."""
        anchors, positives, negatives = unit(embeddings).view(-1, 3, embeddings.shape[1]).unbind(1)
        to_positive, to_negative = ((anchors - targets).square().sum(1) for targets in (positives, negatives))
        self.record(int((to_negative - to_positive < self.margin).sum()), len(anchors))

    def record(self, active: int, triples: int) -> None:
        """Record how many of a step's triples have a loss above zero."""
        if not 0 <= active <= triples:
            raise EquimetricError(f"of {triples} triples {active} cannot be active; give a number in 0 … {triples}")
        self.steps, self.active, self.recorded = self.steps + 1, self.active + active, self.recorded + triples
        if self.steps == self.interval:
            active_ratio = self.active / max(1, self.recorded)
            if active_ratio > 0.8:
                self.rank = min(self.rank * 1.1, float(self.neighbours))
            elif active_ratio < 0.4:
                self.rank = max(self.rank * 0.9, 1.0)
            self.steps, self.active, self.recorded = 0, 0, 0

    def state_dict(self) -> dict[str, Any]:
        """Seed, epoch, position, mined tensors and controller."""
        controller = {"rank": self.rank, "steps": self.steps, "active": self.active, "seen": self.recorded}
        return {**super().state_dict(), "controller": controller}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume at a saved position."""
        super().load_state_dict(state)
        controller = state["controller"]
        self.rank = float(controller["rank"])
        self.steps, self.active, self.recorded = (int(controller[name]) for name in ("steps", "active", "seen"))
