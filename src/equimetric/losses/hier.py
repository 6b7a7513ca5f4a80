"""HIER: a hierarchy beyond the class labels, found by proxies in hyperbolic space, as a regulariser."""

import math

import torch
from torch import Tensor, nn

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import NonNegativeFloat, PositiveFloat, PositiveInt
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform


@loss(
    "hier",
    title="HIER",
    family="regulariser",
    paper="Kim, Jeong, Kwak: HIER, metric learning beyond class labels via hierarchical regularization (2023)",
    geometry="none",
    references="batch",
    takes="batch",
    search={"margin": Uniform(0.0, 0.5), "tau": LogUniform(0.02, 0.5)},
    exempt={
        "monotone": "compares distances to the proxies of a hierarchy, not pairs",
        **dict.fromkeys(
            ("permutation", "multiplicity", "finite differences", "parameter differences", "static shapes"),
            "draws triplets and proxies at random",
        ),
    },
)
class HierarchicalRegulariser(nn.Module):
    """Draw related samples below a common ancestor that a less related one does not share; add it to any objective.

    L = ℓ(X) + ℓ(P), over the samples and over the proxies among themselves, m = margin,
    ℓ = mean_{i,j,k} 1[ρ ≠ ϱ] ([d(i,ρ) − d(i,ϱ) + m]₊ + [d(j,ρ) − d(j,ϱ) + m]₊ + [d(k,ϱ) − d(k,ρ) + m]₊), with d the
    distance in the Poincaré ball of curvature −c,
    d(u,v) = 2/√c · asinh(√c ‖u − v‖ / √((1 − c‖u‖²)(1 − c‖v‖²))), into which embeddings and `proxies` proxies, cut to
    the length clip_r, are mapped by u = tanh(√c‖x‖) x / (√c‖x‖). i is any sample; j one of its reciprocal neighbours,
    each among the `topk` nearest samples of the other, where those of its own class come first; k any other sample;
    `per_anchor` such triplets are drawn for each i. ρ, the lowest common ancestor of i and j, is the proxy with
    the largest −max(d(i,·), d(j,·))/tau + g, g drawn from Gumbel's distribution, and ϱ, that of all three, is the same
    with max(d(i,·), d(j,·), d(k,·)); gradients pass as if the choice were the softmax of these numbers.
    A triplet counts as often as its sample i, and j and k are drawn in proportion to their weights.
    With `riemannian` the gradient of a point u of the ball is multiplied by (1 − c‖u‖²)²/4, as its metric demands.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        proxies: PositiveInt = 512,
        c: PositiveFloat = 0.1,
        clip_r: PositiveFloat = 2.3,
        margin: NonNegativeFloat = 0.1,
        tau: PositiveFloat = 0.1,
        topk: PositiveInt = 20,
        per_anchor: PositiveInt = 50,
        riemannian: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(proxies, dim) / math.sqrt(dim) * clip_r * 0.9)
        self.c, self.clip_r = c, clip_r
        self.margin, self.tau, self.topk, self.per_anchor = margin, tau, topk, per_anchor
        self.riemannian = riemannian
        self.generator = generator

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of a batch and of the proxies."""
        embeddings = ops.require.batch_embeddings(pairs, "hier", dim=self.proxies.shape[1])
        dtype = torch.promote_types(embeddings.dtype, self.proxies.dtype)
        samples, ancestors = self.in_ball(embeddings.to(dtype)), self.in_ball(self.proxies.to(dtype))
        among_proxies = self.distance(ancestors, ancestors)
        with torch.no_grad():
            closeness = (-self.distance(samples, samples)).exp() + pairs.positive
        weight = pairs.query_weight
        return self.hierarchy_loss(self.distance(samples, ancestors), closeness, weight) + self.hierarchy_loss(
            among_proxies, (-among_proxies.detach()).exp()
        )

    def in_ball(self, vectors: Tensor) -> Tensor:
        """The tangent vectors of points of the ball; with `riemannian` their gradients are those of the points."""
        if not self.riemannian:
            return vectors
        norms = torch.linalg.vector_norm(vectors.detach(), dim=1, keepdim=True).clamp_max(self.clip_r)
        # 1 − c‖u‖² = 1 / cosh²(√c‖x‖).
        return ops.special.scale_gradient(vectors, (math.sqrt(self.c) * norms).cosh() ** -4 / 4)

    def distance(self, points: Tensor, others: Tensor) -> Tensor:
        """(N, M) distances in the ball."""
        return ops.special.hyperbolic_distance(points, others, self.c, self.clip_r)

    def hierarchy_loss(self, to_proxies: Tensor, closeness: Tensor, weight: Tensor | None = None) -> Tensor:
        """The mean over drawn triplets of (N, M) distances to the proxies, related by (N, N) closeness."""
        counts = torch.ones_like(closeness[:, 0]) if weight is None else weight.to(closeness)
        triples = self.draw_triples(closeness, counts)
        if not triples.shape[1]:
            return to_proxies.sum() * 0

        count = counts[triples[0]]
        total = ops.special.ancestor_hinges(
            to_proxies, triples, count, margin=self.margin, tau=self.tau, generator=self.generator
        )
        return total / count.sum()

    def draw_triples(self, closeness: Tensor, counts: Tensor) -> Tensor:
        """(3, T) rows i, j and k, `per_anchor` triplets for each sample that has reciprocal neighbours and others.

        Sample i is present (N,) `counts` times.
        """
        eye = torch.eye(len(closeness), dtype=torch.bool, device=closeness.device)
        present = counts > 0
        # A sample is its own nearest neighbour and one of the `topk`; an absent sample is no neighbour.
        closeness = closeness.masked_fill(~present, -torch.inf).masked_fill(eye, torch.inf)
        nearest = closeness.topk(min(self.topk, len(closeness)), dim=1).indices
        near = torch.zeros_like(eye).scatter_(1, nearest, True)
        comparable = present[:, None] & present & ~eye
        related = near & near.T & comparable
        unrelated = ~related & comparable
        anchors = (related.any(1) & unrelated.any(1)).nonzero()[:, 0]
        if not len(anchors):
            return anchors.new_empty(3, 0)
        # Above 0 also in single precision.
        probability = (counts / counts.max()).float().clamp_min(torch.finfo(torch.float32).tiny)
        j, k = (
            torch.multinomial(mask[anchors] * probability, self.per_anchor, replacement=True, generator=self.generator)
            for mask in (related, unrelated)
        )
        return torch.stack([anchors[:, None].expand_as(j), j, k]).flatten(1)
