"""Policy-adapted sampling (PADS): negatives drawn from a histogram over distance that can be adapted in training."""

from math import nan

import torch
from torch import Tensor, nn

from equimetric import ops
from equimetric.components import selection
from equimetric.errors import EquimetricError
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs
from equimetric.selection.own_class import OwnClassTriplets

MIN_BIN, MAX_BIN = 1e-25, 1e25
"""Bounds of a bin before normalisation, so that none vanishes for good."""


@selection(
    "pads",
    paper="Roth, Milbich, Ommer: PADS: Policy-adapted sampling for visual similarity learning (2020)",
    exempt={
        "permutation": "draws at random",
        "multiplicity": "draws at random",
        "monotone": "with include_pos a sample of the anchor's own class may be drawn as its negative",
        "static shapes": "the drawn triplets are listed",
    },
)
class Pads(nn.Module):
    """Per anchor a random positive, and a negative drawn by an adaptable distribution over distances.

    `n_support` edges spaced equally over `support_limit` make n_support − 1 bins; a candidate at distance d is drawn
    with probability ∝ h_b of its bin b, and distances outside belong to the first or last bin. At first h is uniform
    over the bins centred in mu ± half_width, and almost 0 elsewhere; `set_distribution` and `adapt` change it.
    With `include_pos` the candidates include the anchor's own class and the anchor itself, so positives are now and
    then pushed away; with `include_same` the anchor may be its own positive. Both regularise, as the paper has it. A
    triplet's negative is never its positive. Draws from torch's global generator unless one is given.
    """

    distribution: Tensor
    inner_edges: Tensor

    def __init__(
        self,
        *,
        n_support: int = 30,
        support_limit: tuple[float, float] = (0.1, 1.4),
        mu: float = 0.5,
        half_width: PositiveFloat = 0.2,
        include_pos: bool = True,
        include_same: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        try:
            low, high = map(float, support_limit)
        except (TypeError, ValueError):
            low, high = nan, nan
        if n_support < 3 or not low < high:
            raise EquimetricError(
                "PADS needs at least 3 edges between two rising distances, "
                f"got n_support={n_support}, support_limit={support_limit!r}"
            )
        self.include_pos = include_pos
        self.include_same = include_same
        self.generator = generator
        edges = torch.linspace(low, high, n_support, dtype=torch.float64)
        # The reference implementation takes 2 / n_support beyond a bin's left edge for its centre.
        initial_support = (edges[:-1] + 2 / n_support - mu).abs() <= half_width
        self.register_buffer("inner_edges", edges[1:-1].to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("distribution", torch.zeros(n_support - 1))
        self.set_distribution(torch.where(initial_support, 1.0, 1e-15))

    def set_distribution(self, probabilities: Tensor) -> None:
        """Draw from these (bins,) probabilities from now on; they need not sum to 1."""
        if probabilities.shape != self.distribution.shape:
            raise EquimetricError(
                f"PADS has {len(self.distribution)} bins, got probabilities of shape {tuple(probabilities.shape)}"
            )
        if not (torch.isfinite(probabilities).all() and (probabilities >= 0).all() and (probabilities > 0).any()):
            raise EquimetricError("probabilities of bins must be finite, not negative, and not all zero")
        bounded = probabilities.detach().double().clamp(MIN_BIN, MAX_BIN)
        self.distribution.copy_(bounded / bounded.sum())

    def adapt(self, multipliers: Tensor) -> None:
        """Multiply the bins' probabilities by these (bins,) factors: h_b ← h_b · a_b, normalised."""
        self.set_distribution(self.distribution * multipliers.to(self.distribution))

    def bins(self, distance: Tensor) -> Tensor:
        """The bin of each distance: the number of inner edges below it."""
        return torch.bucketize(distance, self.inner_edges.to(distance))

    def probabilities(self, pairs: Pairs) -> Tensor:
        """(Q, R) probability of each candidate to be the negative, each row summing to 1, or to 0 without any."""
        if pairs.geometry is None:
            raise EquimetricError("PADS needs pairs that know their geometry, for their distances on the unit sphere")
        distance = pairs.geometry.chord(pairs.similarity.detach())
        candidates = pairs.mask | pairs.self_mask() if self.include_pos else pairs.negative
        weight = pairs.multiplicity(candidates) * self.distribution.to(distance)[self.bins(distance)]
        total = weight.sum(1, keepdim=True)
        return weight / torch.where(total > 0, total, torch.ones_like(total))

    def forward(self, pairs: Pairs) -> OwnClassTriplets:
        """Draw one triplet for each anchor that has a positive."""
        pool = pairs.positive | pairs.self_mask() if self.include_same else pairs.positive
        anchor = pairs.positive.any(1).nonzero()[:, 0]
        positive = ops.special.draw_columns(pairs.multiplicity(pool)[anchor], self.generator)
        probabilities = self.probabilities(pairs)[anchor].scatter(1, positive[:, None], 0.0)
        drawable = (probabilities > 0).any(1)
        anchor, positive, probabilities = anchor[drawable], positive[drawable], probabilities[drawable]
        return OwnClassTriplets(pairs, anchor, positive, ops.special.draw_columns(probabilities, self.generator))
