"""Valid-triplet hard mining, drawn: which pairs of one anchor it keeps, and between which bounds."""

from dataclasses import dataclass

import torch

from equimetric.components import SELECTIONS
from equimetric.pairs import Pairs

__all__ = ["MiningSketch", "mining_sketch"]

POSITIVES, NEGATIVES = (0.85, 0.7, 0.55, 0.4), (0.62, 0.5, 0.36, 0.22, 0.05)


@dataclass(frozen=True)
class MiningSketch:
    """The pairs of one anchor: (cosine, whether it is kept) of positives and negatives, and the two bounds.

    positives are kept below `positive_bound`, negatives above `negative_bound`.
    """

    positives: tuple[tuple[float, bool], ...]
    negatives: tuple[tuple[float, bool], ...]
    positive_bound: float
    negative_bound: float


def mining_sketch(epsilon: float = 0.1) -> MiningSketch:
    """What the selection `vthm` keeps of an anchor with four positives and five negatives, λ = `epsilon`."""
    cosines = torch.tensor([[*POSITIVES, *NEGATIVES]], dtype=torch.float64)
    positive = torch.tensor([[True] * len(POSITIVES) + [False] * len(NEGATIVES)])
    mined = SELECTIONS["vthm"].build({"epsilon": epsilon})(Pairs(cosines, positive, ~positive))
    return MiningSketch(
        tuple(zip(POSITIVES, mined.positive[0, : len(POSITIVES)].tolist(), strict=True)),
        tuple(zip(NEGATIVES, mined.negative[0, len(POSITIVES) :].tolist(), strict=True)),
        max(NEGATIVES) + epsilon,
        min(POSITIVES) - epsilon,
    )
