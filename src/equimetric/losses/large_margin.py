"""Large-margin softmax: a margin that multiplies the angle."""

from math import pi
from typing import Annotated

import torch
from torch import Tensor, nn

from equimetric import ops
from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.option_values import NonNegativeFloat, Range, RowReduction
from equimetric.pairs import Pairs
from equimetric.search_space import Choice, LogUniform, SearchSpace

SEARCH: dict[str, SearchSpace] = {"m": Choice((2, 3, 4, 5)), "lambda_min": LogUniform(0.1, 100.0)}


def multiply_angle(cosine: Tensor, m: int) -> Tensor:
    """ψ(θ) = (−1)^k cos(mθ) − 2k for θ in [kπ/m, (k+1)π/m]: falls from 1 at θ = 0 to 1 − 2m at θ = π.

    cos(mθ) is the Chebyshev polynomial T_m(cos θ), T_n = 2 cos θ T_{n−1} − T_{n−2}; the segment k has no gradient.
    """
    previous, chebyshev = torch.ones_like(cosine), cosine
    for _ in range(m - 1):
        previous, chebyshev = chebyshev, 2 * cosine * chebyshev - previous
    segment = (cosine.detach().clamp(-1, 1).acos() * m / pi).floor().clamp_max(m - 1)
    return (1 - 2 * (segment % 2)) * chebyshev - 2 * segment


@loss(
    "large_margin_softmax",
    title="L-Softmax",
    family="classification",
    per_query=True,
    paper="Liu, Wen, Yu, Yang: Large-margin softmax loss for convolutional neural networks (2016)",
    geometry="dot",
    references="proxies",
    search=SEARCH,
    known_as=("LSoftmax",),
)
class LargeMarginSoftmax(nn.Module):
    """Classify by dot product after multiplying the angle to the right class.

    L = mean_i −log softmax(z_i)_{y_i}, z_c = ‖x‖‖w_c‖ cos θ_c, z_y = ‖x‖‖w_y‖ (λ_t cos θ_y + ψ(θ_y)) / (1 + λ_t),
    ψ(θ) = (−1)^k cos(mθ) − 2k for θ in [kπ/m, (k+1)π/m]. The margin is phased in: after t training steps, counted in
    the state dict, λ_t = max(lambda_min, lambda_base · (1 + lambda_gamma · t)^{−lambda_power}).
    """

    iteration: Tensor

    def __init__(
        self,
        *,
        m: Annotated[int, Range(1, 64)] = 4,
        lambda_base: NonNegativeFloat = 1000.0,
        lambda_gamma: NonNegativeFloat = 0.12,
        lambda_power: NonNegativeFloat = 1.0,
        lambda_min: NonNegativeFloat = 5.0,
        reduction: RowReduction = "mean",
    ) -> None:
        super().__init__()
        self.m = m
        self.lambda_base, self.lambda_gamma = lambda_base, lambda_gamma
        self.lambda_power, self.lambda_min = lambda_power, lambda_min
        self.reduction = reduction
        self.register_buffer("iteration", torch.zeros((), dtype=torch.int64))

    def step_lambda(self, dtype: torch.dtype) -> Tensor:
        """Compute λ_t of this step; counts the step in training."""
        steps = 1 + self.lambda_gamma * self.iteration.to(dtype)
        if self.training:
            self.iteration += 1
        return (self.lambda_base * steps**-self.lambda_power).clamp_min(self.lambda_min)

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of pairs of raw queries and class weights."""
        return self.classify(pairs, pairs.similarity, target_product(pairs))

    def classify(self, pairs: Pairs, logits: Tensor, norm_product: Tensor | float) -> Tensor:
        """Cross-entropy of logits a cos θ, the target's a (λ cos θ + ψ(θ)) / (1 + λ), a = `norm_product`."""
        lam = self.step_lambda(logits.dtype)

        def add_margin(product: Tensor) -> Tensor:
            cosine = divide_by_norm(product, norm_product)
            return norm_product * (lam * cosine + multiply_angle(cosine, self.m)) / (1 + lam)

        return ops.cross_entropy(
            ops.special.replace_positives(logits, pairs, add_margin), pairs, reduction=self.reduction
        )


def target_product(pairs: Pairs) -> Tensor:
    """(Q, 1) ‖x_i‖ ‖w_{y_i}‖: the dot product of a query and its class weight over their cosine."""
    if pairs.queries is None or pairs.queries.target_length is None:
        raise EquimetricError(
            "a margin that multiplies the angle needs the lengths of embeddings and class weights; "
            "use references='proxies' with per_class=1 and without a bias"
        )
    norms: Tensor = torch.linalg.vector_norm(pairs.queries.embeddings, dim=1) * pairs.queries.target_length
    return norms[:, None]


def divide_by_norm(product: Tensor, norm: Tensor | float) -> Tensor:
    """Product / (Q, 1) norm: the cosine where the class is the query's own; 0 for a query of norm 0."""
    return product / (torch.threshold(norm, 1e-12, 1.0) if isinstance(norm, Tensor) else norm)
