"""The deployed network: pixels in, unit vectors out, and with a cohort search vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from equimetric.evaluation.cohort import MIN_STD, Cohort
from equimetric.learners import Learner

__all__ = ["CohortLayer", "DeployedNetwork", "output_names"]

PLAIN, EXTENDED = ("embedding",), ("embedding", "query", "gallery")


def output_names(cohort: Cohort | None) -> tuple[str, ...]:
    """Names of the outputs of a deployed network, in order."""
    return PLAIN if cohort is None else EXTENDED


class CohortLayer(nn.Module):
    """Unit vectors (B, D) → extended vectors (B, E) as query and as gallery item, as `Cohort.extend` makes them.

    Their inner product is the similarity normalised by the cohort (see `evaluation.cohort`).
    """

    cohort: Tensor

    def __init__(self, cohort: Cohort) -> None:
        super().__init__()
        self.register_buffer("cohort", cohort.unit.float(), persistent=False)
        self.nearest = min(cohort.nearest, len(self.cohort))
        self.strength = cohort.strength
        self.full = cohort.form == "full" and cohort.strength > 0

    def forward(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors as queries and as gallery items."""
        ones = torch.ones_like(unit[:, :1])
        if self.strength == 0:
            zeros = torch.zeros_like(ones)
            return torch.cat([unit, zeros, ones], 1), torch.cat([unit, ones, zeros], 1)
        largest = (unit @ self.cohort.T).topk(self.nearest, dim=1).values.double()
        mean = largest.mean(dim=1, keepdim=True)
        if not self.full:
            shift = (mean * (-self.strength / 2)).to(unit.dtype)
            return torch.cat([unit, shift, ones], 1), torch.cat([unit, ones, shift], 1)
        deviation = (largest - mean).square().mean(dim=1, keepdim=True).sqrt()
        scale = 1 / deviation.clamp(min=MIN_STD)
        shift, scaled = (-mean * scale).to(unit.dtype), (unit * scale).to(unit.dtype)
        return torch.cat([scaled, unit, shift, ones], 1) / 2, torch.cat([unit, scaled, ones, shift], 1)


class DeployedNetwork(nn.Module):
    """uint8 images (B, C, S, S) → (embedding,), or with a cohort (embedding, query, gallery).

    Contains everything after the pixels: the input convention of the weights, trunk, head, normalisation, cohort.
    """

    def __init__(self, learner: Learner, cohort: Cohort | None = None) -> None:
        super().__init__()
        self.learner = learner.eval()
        self.extend = None if cohort is None else CohortLayer(cohort)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """The outputs that `output_names` lists."""
        embedding = self.learner.embed(self.learner.prepare(images))
        return (embedding,) if self.extend is None else (embedding, *self.extend(embedding))
