"""PDDM: a learned similarity of two embeddings, trained on hard quadruplets."""

import torch
from torch import Tensor, nn

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveInt
from equimetric.pairs import Pairs


@loss(
    "pddm",
    title="PDDM",
    family="ranking",
    per_query=True,
    paper="Huang, Loy, Tang: Local similarity-aware deep feature embedding (2016)",
    geometry="sqeuclidean",
    references="batch",
    takes="batch",
    exempt={
        "multiplicity": "rows and columns are the same samples: columns cannot be repeated alone",
    },
)
class PositionDependentMetric(nn.Module):
    """A similarity learned from difference and position of two embeddings, trained on the hard quadruplets it picks.

    u = |x_i − x_j|, v = (x_i + x_j)/2, u' = unit(relu(W_u u + b_u)), v' = unit(relu(W_v v + b_v)),
    S_ij = w_s·relu(W_c [u'; v'] + b_c) + b_s, larger = closer. For every anchor i: its hardest positive
    j = argmin_{P_i} S_i·, k = argmax_{N_i} S_i·, l = argmax_{N_j} S_j·;
    L = mean_i ([a + S_ik − S_ij]₊ + [a + S_jl − S_ij]₊) + λ mean_i ([b + d²_ij − d²_ik]₊ + [b + d²_ij − d²_jl]₊).
    `hidden`, the width of every layer, is that of the embedding unless given.
    """

    def __init__(
        self, *, dim: PositiveInt, hidden: PositiveInt | None = None, a: float = 0.5, b: float = 1.0, lam: float = 0.5
    ) -> None:
        super().__init__()
        hidden = dim if hidden is None else hidden
        self.difference = nn.Linear(dim, hidden)
        self.position = nn.Linear(dim, hidden)
        self.joint = nn.Linear(2 * hidden, hidden)
        self.readout = nn.Linear(hidden, 1)
        self.a, self.b, self.lam = a, b, lam

    def score(self, left: Tensor, right: Tensor) -> Tensor:
        """(…,) learned similarity of (…, D) embeddings; symmetric."""
        return self.compare(self.add_position(left), self.add_position(right))

    def add_position(self, embeddings: Tensor) -> Tensor:
        """(…, D + H) embeddings with their share of W_v v + b_v: that of a pair is the sum of two."""
        return torch.cat([embeddings, ops.special.linear(self.position, embeddings) / 2], -1)

    def compare(self, left: Tensor, right: Tensor) -> Tensor:
        """(…,) learned similarity of (…, D + H) embeddings with their positions."""
        dim = self.difference.in_features
        difference = ops.unit(ops.special.linear(self.difference, (left[..., :dim] - right[..., :dim]).abs()).relu())
        position = ops.unit((left[..., dim:] + right[..., dim:]).relu())
        joint = ops.special.linear(self.joint, torch.cat([difference, position], -1)).relu()
        return ops.special.linear(self.readout, joint).squeeze(-1)

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of a batch; gradients are formed for the chosen pairs only."""
        dim = self.difference.in_features
        embeddings, _ = ops.require.whole_batch(pairs, "pddm", dim)
        samples = self.add_position(embeddings)
        scores = ops.special.pairwise(self.compare, samples, width=max(self.joint.in_features, dim))
        anchor = torch.arange(len(embeddings), device=scores.device)
        positive = ops.special.row_argmin(scores, pairs.positive)
        negative = ops.special.row_argmax(scores, pairs.negative)
        edges = ((anchor, positive), (anchor, negative), (positive, negative[positive]))
        near, far, far_from_positive = (self.compare(samples[i], samples[j]) for i, j in edges)
        learned = (self.a + far - near).relu() + (self.a + far_from_positive - near).relu()
        near, far, far_from_positive = (pairs.similarity[i, j] for i, j in edges)
        plain = (self.b + far - near).relu() + (self.b + far_from_positive - near).relu()
        valid = ops.has_any(pairs.positive) & ops.has_any(pairs.negative)
        return ops.mean(learned, valid) + self.lam * ops.mean(plain, valid)
