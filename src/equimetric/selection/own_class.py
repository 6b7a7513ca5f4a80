"""Triplets whose negative may be of the anchor's own class: they push positives apart, on purpose."""

import torch

from equimetric.pairs import Pairs, Triplets


class OwnClassTriplets(Triplets):
    """Triplets in which a pair's role, not its label, says whether it is pulled or pushed.

    No pair may have both roles. The positive of a triplet may be the anchor itself, at distance 0; as a pair that
    carries no information for a loss and is left out.
    """

    def as_pairs(self) -> Pairs:
        """The pairs that occur in the triplets, weighted by how often; those drawn as negatives are negatives."""
        pairs = super().as_pairs()
        pushed = torch.zeros_like(pairs.positive)
        pushed[self.anchor, self.negative] = True
        return pairs.replace(positive=pairs.positive & ~pushed, negative=pairs.mask & pushed)
