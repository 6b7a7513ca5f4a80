"""Dynamic soft margin: a triplet counts by its rank among the triplets seen so far."""

from typing import Annotated

import torch
from torch import Tensor, nn

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import Range, UnitFraction
from equimetric.pairs import Pairs, TripletBand, Triplets
from equimetric.search_space import LogUniform

MAX_VIOLATION = 2.0
"""The largest violation of unit vectors, by distance and by cosine."""

ROUNDING = 1e-4
"""A violation this little below a histogram node, such as that of coincident samples, counts as on it."""


@loss(
    "dynamic_soft_margin",
    title="Dynamic soft margin",
    family="ranking",
    paper="Zhang, Rusinkiewicz: Learning local descriptors with a CDF-based dynamic soft margin (2019)",
    geometry=("euclidean", "cosine"),
    takes="triplets",
    search={"momentum": LogUniform(0.001, 0.1)},
    exempt={
        "finite differences": "the weights follow from the violations but count as constants",
        "static shapes": "the triplets are listed",
    },
)
class DynamicSoftMargin(nn.Module):
    """Weigh each triplet by the fraction of triplets that violate less; there is no margin to choose.

    L = mean_{(a,p,n)} F(v) · v, v = s_an − s_ap the violation, F the cumulative distribution of v: a constant, from a
    histogram with `nodes` nodes between −2 and 2 that keeps 1 − `momentum` of its past in every training step. The
    first batch starts the histogram; outside training it stays as it is. It is part of the state.
    """

    histogram: Tensor

    def __init__(self, *, nodes: Annotated[int, Range(2)] = 512, momentum: UnitFraction = 0.01) -> None:
        super().__init__()
        self.nodes, self.momentum = nodes, momentum
        self.register_buffer("histogram", torch.zeros(nodes))

    def forward(self, selected: Pairs | Triplets | TripletBand) -> Tensor:
        """The loss of triplets."""
        band = TripletBand(selected) if isinstance(selected, Pairs) else selected
        triplets = band.triplets() if isinstance(band, TripletBand) else band
        violation = triplets.violation()
        if not len(triplets):
            return violation.sum()
        with torch.no_grad():
            # NaN has no place, but makes the loss NaN.
            index = ((violation + MAX_VIOLATION) * ((self.nodes - 1) / (2 * MAX_VIOLATION))).nan_to_num(0)
            index = index.clamp(0, self.nodes - 1)
            node = (index + ROUNDING).clamp_max(self.nodes - 1).long()
            probs = self.update(index, triple_counts(triplets)).cumsum(0)[node]
        all_terms = torch.ones_like(probs, dtype=torch.bool)
        return ops.mean(probs * violation, all_terms, triplets.weight, rows=triplets.anchor)

    def update(self, index: Tensor, weight: Tensor | None) -> Tensor:
        """(nodes,) the share of triplets at each node, these included; kept where this is a training step."""
        all_terms = torch.ones_like(index, dtype=torch.bool)[None]
        row = Pairs(index[None], all_terms, ~all_terms, None if weight is None else weight[None])
        counts = ops.special.soft_histograms(row, row.similarity, self.nodes)[0][0]
        momentum = self.momentum if self.histogram.any() else 1.0
        probs = (1 - momentum) * self.histogram.to(counts) + momentum * ops.divide(counts, counts.sum())
        if self.training:
            self.histogram.copy_(probs)
        return probs


def triple_counts(triplets: Triplets) -> Tensor | None:
    """(T,) how often each triplet counts, its anchor included; None where all count once."""
    queries = triplets.pairs.query_weight
    if queries is None:
        return triplets.weight
    anchors = queries[triplets.anchor]
    return anchors if triplets.weight is None else anchors * triplets.weight
