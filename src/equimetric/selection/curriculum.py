"""Curricula: pairs or triplets of a difficulty that changes over training, from the easy to the hard."""

from math import nan
from typing import Any

import torch
from torch import Tensor

from equimetric.components import Scheduled, selection
from equimetric.errors import EquimetricError
from equimetric.option_values import PositiveInt
from equimetric.pairs import Pairs, TripletBand, Triplets, round_ties
from equimetric.selection.hdc import weighted_quantile

PAPER = "Bengio, Louradour, Collobert, Weston: Curriculum learning (2009)"
Band = tuple[float, float]
EASY: Band = (0.0, 0.5)
ALL: Band = (0.0, 1.0)


class Curriculum(Scheduled):
    """A band of difficulties, from the easiest, 0, to the hardest of a batch, 1, that moves with the training step."""

    def __init__(self, start: Band, end: Band, curriculum_steps: int) -> None:
        super().__init__()
        self.start, self.end = check_band("start", start), check_band("end", end)
        self.curriculum_steps = curriculum_steps

    def band(self) -> Band:
        """The lowest and the highest share at this step."""
        progress = min(1.0, int(self.step) / self.curriculum_steps)
        low, high = ((1 - progress) * first + progress * last for first, last in zip(self.start, self.end, strict=True))
        return low, high

    def band_mask(self, difficulty: Tensor, counts: Tensor) -> Tensor:
        """Mask of difficulties inside the band; each of the n entries is counted as often as `counts` says.

        These are the ⌊low · n⌋ + 1st to the ⌈high · n⌉-th easiest, and those that tie with either.
        """
        low, high = self.band()
        return (difficulty >= -weighted_quantile(-difficulty, counts, 1 - low)) & (
            difficulty <= weighted_quantile(difficulty, counts, high)
        )


def check_band(name: str, band: Any) -> Band:
    """Check two rising fractions."""
    try:
        low, high = map(float, band)
    except (TypeError, ValueError):
        low, high = nan, nan
    if not 0 <= low < high <= 1:
        raise EquimetricError(f"{name} of a curriculum must be two rising shares such as (0.0, 0.5), got {band!r}")
    return low, high


@selection("curriculum", paper=PAPER, separable=False)
class PairCurriculum(Curriculum):
    """Keep positives and negatives of a difficulty that changes over training.

    A positive is the harder the farther, a negative the harder the closer it is. Of either kind the pairs between two
    shares of the batch's pairs in order of difficulty are kept: the band `start` at step 0, `end` from step
    `curriculum_steps` on, and in between in proportion to the step. (0.0, 1.0) keeps all. `Objective.set_step` sets
    the step.
    """

    def __init__(self, *, start: Band = EASY, end: Band = ALL, curriculum_steps: PositiveInt = 1000) -> None:
        super().__init__(start, end, curriculum_steps)

    def forward(self, pairs: Pairs) -> Pairs:
        """The pairs of this step's band."""
        similarity, weighted = pairs.similarity.detach(), pairs.apply_query_weight()
        return pairs.keep(
            positive=self.band_mask(-similarity, weighted.multiplicity(pairs.positive)),
            negative=self.band_mask(similarity, weighted.multiplicity(pairs.negative)),
        )


@selection(
    "curriculum_triplets",
    paper=PAPER,
    separable=False,
    exempt={"static shapes": "the triplets are listed"},
)
class TripletCurriculum(Curriculum):
    """Keep triplets of a difficulty that changes over training: the larger s_an − s_ap, the harder.

    Of all triplets of the batch in order of difficulty those between two shares are kept: the band `start` at step 0,
    `end` from step `curriculum_steps` on, and in between in proportion to the step. (0.0, 1.0) keeps all.
    `Objective.set_step` sets the step.
    """

    def __init__(self, *, start: Band = EASY, end: Band = ALL, curriculum_steps: PositiveInt = 1000) -> None:
        super().__init__(start, end, curriculum_steps)

    def forward(self, pairs: Pairs) -> Triplets:
        """The triplets of this step's band."""
        triplets = TripletBand(pairs).triplets()
        difficulty, queries = round_ties(triplets.violation()), pairs.query_weight
        counts = torch.ones_like(difficulty) if triplets.weight is None else triplets.weight
        mask = self.band_mask(difficulty, counts if queries is None else counts * queries[triplets.anchor])
        return Triplets.from_indices(pairs, triplets.anchor[mask], triplets.positive[mask], triplets.negative[mask])
