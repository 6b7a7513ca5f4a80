"""Manifold similarities: a random walk over the batch and a few proxies says how close they are."""

from typing import Annotated

import torch
from torch import Tensor, nn

from equimetric import ops
from equimetric.components import loss
from equimetric.losses.dreml import balanced_map
from equimetric.option_values import NonNegativeFloat, NonNegativeInt, PositiveInt, Range
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform
from equimetric.seeding import derive_seed


@loss(
    "manifold",
    title="Manifold",
    family="proxy",
    paper="Aziere, Todorovic: Ensemble deep manifold similarity learning using hard proxies (2019)",
    geometry="none",
    references="batch",
    takes="batch",
    search={"alpha": Uniform(0.5, 0.99), "context": LogUniform(0.1, 10.0), "margin": LogUniform(1e-5, 1e-2)},
    exempt={
        "monotone": "compares by random walks through the whole batch, not by pairs",
        "multiplicity": "rows and columns are the same samples: columns cannot be repeated alone",
    },
)
class ManifoldSimilarity(nn.Module):
    """A sample must be closer to the proxy of its meta-class than to others, along the manifold of the batch.

    S = e^{2[cos]₊} between all samples and `proxies` proxies, 0 with themselves; S̄ = D^{−½} S D^{−½}, D the row sums;
    F = (1 − α)(I − αS̄)^{−1}, the limit of a random walk that continues with probability `alpha`.
    L = ℓ(F) + context · ℓ(C), C the cosines of the rows of F; ℓ(A) = mean_i log(1 + Σ_k e^{a_ik}), k a proxy
    of another meta-class with a_ik = A_ik − A_im + margin ≥ 0, m the proxy of the sample's meta-class. The classes
    0 … classes − 1 are grouped into meta-classes at random, of sizes as equal as possible, by `seed`. A walk passes a
    sample of weight w as if it were w nodes, between which it does not go.
    """

    meta_classes: Tensor

    def __init__(
        self,
        *,
        classes: PositiveInt,
        dim: PositiveInt,
        proxies: PositiveInt = 50,
        alpha: Annotated[float, Range(0.0, 0.999)] = 0.8,
        context: NonNegativeFloat = 1.0,
        margin: NonNegativeFloat = 5e-4,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        self.alpha, self.context, self.margin = alpha, context, margin
        self.proxies = nn.Parameter(torch.randn(proxies, dim))
        self.register_buffer("meta_classes", balanced_map(classes, proxies, derive_seed(seed, "meta-classes")))

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of a batch."""
        embeddings = ops.require.batch_embeddings(pairs, "manifold", dim=self.proxies.shape[1])
        labels = ops.require.class_labels(pairs, "manifold", classes=len(self.meta_classes))
        dtype = torch.promote_types(embeddings.dtype, self.proxies.dtype)
        nodes = ops.unit(torch.cat([embeddings.to(dtype), self.proxies.to(dtype)]))
        target = self.meta_classes[labels][:, None]
        walks, cosines = random_walks(nodes, pairs, self.alpha)
        return self.compare(walks, target) + self.context * self.compare(cosines, target)

    def proxy_sets(self) -> list[tuple[Tensor, Tensor]]:
        """The proxies that stand for meta-classes of some class, and which these are."""
        rows = torch.unique(self.meta_classes)
        return [(self.proxies[rows], rows)]

    def compare(self, similarity: Tensor, target: Tensor) -> Tensor:
        """ℓ of (B, K) similarities to the proxies, `target` (B, 1) those of the samples' meta-classes."""
        violation = similarity - similarity.gather(1, target) + self.margin
        # Not "≥ 0", which would leave NaN out.
        violates = (~(violation < 0)).scatter(1, target, False)
        return ops.mean(ops.log1p_sum_exp(violation, violates))


def random_walks(nodes: Tensor, pairs: Pairs, alpha: float) -> tuple[Tensor, Tensor]:
    """(B, K) F of the B samples of the pairs and K proxies, and the cosines of the rows of F; nodes are unit vectors.

    With H = (I − αW^½S̄W^½)^{−1}, W the weights, F_ij = (1 − α) H_ij / √(w_i w_j) between different nodes i and j; of
    the w_i copies of i, one of which a walk starts at, Σ F_ii² = (1 − α)² (1 + (H_ii² − 1) / w_i).
    """
    num_samples = len(pairs.similarity)
    weight = nodes.new_ones(num_samples) if pairs.query_weight is None else pairs.query_weight.to(nodes)
    root = torch.cat([weight, nodes.new_ones(len(nodes) - num_samples)]).sqrt()
    eye = torch.eye(len(nodes), dtype=nodes.dtype, device=nodes.device)
    connected = 1 - eye
    connected[:num_samples, :num_samples] = pairs.mask.to(nodes.dtype)
    affinity = (2 * (nodes @ nodes.T).relu()).exp() * connected
    scale = root * (affinity @ root.square()).rsqrt()
    inverse: Tensor = torch.linalg.inv(eye - alpha * scale[:, None] * affinity * scale)
    samples, proxies = inverse[:num_samples], inverse[num_samples:]
    present = weight > 0
    norms = torch.where(present, samples.square().sum(1) - 1 + weight, 1).sqrt()
    walks = (1 - alpha) * samples[:, num_samples:] / torch.where(present, weight, 1).sqrt()[:, None]
    return walks, samples @ ops.unit(proxies).T / norms[:, None]
