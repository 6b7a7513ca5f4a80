"""HIST: samples and the distributions of classes as a hypergraph, through which features are propagated."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, leaky_relu, relu6

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import NonNegativeFloat, PositiveFloat, PositiveInt
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform


@loss(
    "hist",
    title="HIST",
    family="contextual",
    per_query=True,
    paper="Lim, Yun, Park, Choi: Hypergraph-induced semantic tuplet loss for deep metric learning (2022)",
    geometry="none",
    references="batch",
    takes="batch",
    search={"tau": LogUniform(1.0, 100.0), "alpha": Uniform(0.1, 3.0), "lam": LogUniform(0.1, 10.0)},
    exempt={
        "multiplicity": "rows and columns are the same samples: columns cannot be repeated alone",
        "monotone": "compares with the distributions of classes and propagates through the batch, not by pairs",
    },
    known_as=("HypergraphInducedSemanticTuplet",),
)
class HypergraphTuplets(nn.Module):
    """Classify by the distance to class distributions, and once more after propagation through their hypergraph.

    d_ic = Σ_f (u_if − m_cf)² / σ²_cf, u = x/‖x‖, m_c the unit vector of the learned mean of class c,
    σ²_c = exp(min(6, max(0, ρ_c))). L = mean_i −log softmax(−tau d_i)_{y_i} + lam · mean_i −log softmax(o_i)_{y_i} with
    o = G(Z θ₂ + b₂), Z = LeakyReLU(BN(G(x θ₁ + b₁))) of `hidden` dimensions and slope 0.1, x the raw embeddings.
    G = D_v^{−½} H D_e^{−1} Hᵀ D_v^{−½}: of the classes e in the batch, H_ie = 1 for own samples and e^{−alpha d_ie} for
    others, D_v and D_e its row and column sums. A sample of weight w is w nodes. Everything here is of training alone.
    The paper trains means and variances at a rate of 0.1.
    """

    def __init__(
        self,
        *,
        classes: PositiveInt,
        dim: PositiveInt,
        tau: PositiveFloat = 32.0,
        alpha: PositiveFloat = 1.1,
        lam: NonNegativeFloat = 1.0,
        hidden: PositiveInt = 512,
    ) -> None:
        super().__init__()
        self.tau, self.alpha, self.lam = tau, alpha, lam
        self.means, self.log_variances = (nn.Parameter(torch.empty(classes, dim)) for _ in range(2))
        for parameter in (self.means, self.log_variances):
            nn.init.kaiming_normal_(parameter, mode="fan_out")
        self.first, self.norm = nn.Linear(dim, hidden), ops.special.BatchNorm(hidden)
        self.second = nn.Linear(hidden, classes)

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of a batch."""
        embeddings, labels = ops.require.whole_batch(pairs, "hist", self.means.shape[1])
        ops.require.class_labels(pairs, "hist", classes=len(self.means))
        embeddings = embeddings.to(torch.promote_types(embeddings.dtype, self.means.dtype))
        weight = pairs.query_weight
        distance = self.distance(embeddings)
        incidence = self.incidence(distance, labels, weight)
        hidden = propagate(ops.special.linear(self.first, embeddings), incidence, weight)
        hidden = leaky_relu(self.norm(hidden, weight), 0.1)
        logits = propagate(ops.special.linear(self.second, hidden), incidence, weight)
        return self.classify(-self.tau * distance, labels) + self.lam * self.classify(logits, labels)

    def proxy_sets(self) -> list[tuple[Tensor, Tensor]]:
        """The means of the classes."""
        return [(self.means, torch.arange(len(self.means), device=self.means.device))]

    def distance(self, embeddings: Tensor) -> Tensor:
        """(B, C) distances of unit vectors to the class distributions, by products of (B, D) and (C, D)."""
        units, means = ops.unit(embeddings), ops.unit(self.means.to(embeddings))
        precision = (-relu6(self.log_variances.to(embeddings))).exp()
        products = units.square() @ precision.T - 2 * units @ (means * precision).T
        return (products + (means.square() * precision).sum(1)).clamp_min(0)

    def incidence(self, distance: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        """(B, E) H: how much each sample belongs to each class of the batch, 0 in the columns of absent classes."""
        group, num_classes = ops.special.group_rows(labels)
        is_member = group[:, None] == torch.arange(num_classes, device=group.device)
        present = (is_member if weight is None else is_member & (weight > 0)[:, None]).any(0)
        classes = labels.new_zeros(num_classes).scatter(0, group, labels)
        soft_membership = (-self.alpha * distance[:, classes]).exp()
        return torch.where(is_member, 1.0, soft_membership) * present

    def classify(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy of (B, C) logits."""
        return ops.mean(cross_entropy(logits, labels, reduction="none"))


def propagate(vectors: Tensor, incidence: Tensor, weight: Tensor | None = None) -> Tensor:
    """(B, D) G times the vectors, from samples to classes and back; each sample counts by its (B,) weight."""
    counts = torch.ones_like(incidence[:, 0]) if weight is None else weight.to(incidence)
    degrees = incidence.sum(1, keepdim=True)
    scale = torch.where(degrees > 0, degrees, 1.0).rsqrt()
    gathered = incidence.T @ (counts[:, None] * scale * vectors)
    return scale * (incidence @ ops.divide(gathered, (counts @ incidence)[:, None]))
