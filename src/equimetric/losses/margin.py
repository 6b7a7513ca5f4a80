"""Margin loss with a learned boundary."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from equimetric import ops
from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.pairs import Pairs, TripletBand, Triplets
from equimetric.search_space import Uniform


def initial_offsets(values_or_count: int | Sequence[float] | Tensor, name: str) -> Tensor:
    """(n,) zeros for a count n, or the values themselves."""
    try:
        values = torch.as_tensor(values_or_count)
    except (TypeError, ValueError, RuntimeError):
        values = torch.zeros(0, 0)
    if not values.ndim and not values.is_floating_point() and values.dtype != torch.bool and values >= 1:
        return torch.zeros(int(values))
    if values.ndim != 1 or not values.isfinite().all():
        raise EquimetricError(f"{name} must be a number of boundaries of 1 or more, or the values they start from")
    return values.to(torch.get_default_dtype(), copy=True)


@loss(
    "margin_loss",
    title="Margin (all pairs)",
    family="ranking",
    separable=True,
    paper="Wu, Manmatha, Smola, Krähenbühl: Sampling matters in deep embedding learning (2017)",
    geometry=("euclidean", "cosine"),
    takes="triplets",
    search={"alpha": Uniform(-0.2, 2.0), "beta": Uniform(-0.2, 2.0), "nu": Uniform(0.0, 0.1)},
)
class MarginLoss(nn.Module):
    """Contrastive loss around a learned boundary β, with a margin α on either side.

    ℓ_ij = [α + Y_ij (d_ij − β_i)]₊, Y = +1 for positives, −1 for negatives;
    β_i = b + b_{y_i} + b^i, where b starts from `beta`; offsets b_y of the classes and b^i of the images exist where
    `beta_class` and `beta_img` give their number, to start from 0, or the values to start from;
    L = (Σ ℓ + ν Σ β) / n, n the number of terms above zero.
    Over pairs Σβ takes every ordered pair once; over triplets every triplet adds a positive term, a negative term and
    one β of its anchor.
    """

    def __init__(
        self,
        *,
        alpha: float = 0.2,
        beta: float = 1.2,
        nu: float = 0.0,
        beta_class: int | Sequence[float] | Tensor | None = None,
        beta_img: int | Sequence[float] | Tensor | None = None,
    ) -> None:
        super().__init__()
        self.alpha = alpha
        self.nu = nu
        self.beta = nn.Parameter(torch.tensor(float(beta)))
        self.beta_class = None if beta_class is None else nn.Parameter(initial_offsets(beta_class, "beta_class"))
        self.beta_img = None if beta_img is None else nn.Parameter(initial_offsets(beta_img, "beta_img"))

    def boundary(self, pairs: Pairs) -> Tensor:
        """(Q, 1) β of every query."""
        beta = self.beta.to(pairs.similarity).expand(len(pairs.similarity))
        labels, index = (pairs.queries.labels, pairs.queries.index) if pairs.queries else (None, None)
        for offsets, ids, name in (
            (self.beta_class, labels, "labels in 0 … their number − 1"),
            (self.beta_img, index, "index=… with every sample's place in the training set"),
        ):
            if offsets is not None:
                if ids is None or (len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(offsets)):
                    raise EquimetricError(
                        f"this margin loss keeps {len(offsets)} boundaries of its own; it needs {name}"
                    )
                beta = beta + offsets.to(beta)[ids]
        return beta[:, None]

    def forward(self, selected: Pairs | Triplets | TripletBand) -> Tensor:
        """The loss of pairs or triplets."""
        if isinstance(selected, Triplets):
            return self.compute_listed(selected)
        from_triplets = isinstance(selected, TripletBand)
        pairs = selected.as_pairs() if isinstance(selected, TripletBand) else selected
        distance, beta = pairs.distance(), self.boundary(pairs)
        pull = (self.alpha + distance - beta).relu()
        push = (self.alpha - distance + beta).relu()
        value = ops.special.masked_sum(pull, pairs.positive, pairs.weight) + ops.special.masked_sum(
            push, pairs.negative, pairs.weight
        )
        active = (pairs.positive & (pull > 0)) | (pairs.negative & (push > 0))
        regularised = pairs.positive if from_triplets else pairs.mask
        value = value + self.nu * ops.special.masked_sum(beta.expand_as(distance), regularised, pairs.weight)
        return ops.special.ratio(value, ops.special.count(active, pairs.weight, value.dtype))

    def compute_listed(self, triplets: Triplets) -> Tensor:
        """The loss of listed triplets, whose positive or negative may be the anchor itself."""
        distance, beta = triplets.pairs.distance(), self.boundary(triplets.pairs)[triplets.anchor, 0]
        pull = (self.alpha + distance[triplets.anchor, triplets.positive] - beta).relu()
        push = (self.alpha - distance[triplets.anchor, triplets.negative] + beta).relu()
        all_terms = torch.ones_like(pull, dtype=torch.bool)
        weight, anchor = triplets.weight, triplets.anchor
        value = ops.special.masked_sum(pull + push + self.nu * beta, all_terms, weight, anchor)
        active = sum(ops.special.count(terms > 0, weight, value.dtype, anchor) for terms in (pull, push))
        return ops.special.ratio(value, torch.as_tensor(active))
