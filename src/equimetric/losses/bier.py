"""BIER and A-BIER: an embedding cut into members that are boosted one after the other, and kept unlike each other."""

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from equimetric import ops
from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.losses.members import EXEMPT, member_slices, proportional_sizes
from equimetric.option_values import NonNegativeFloat, PositiveFloat, PositiveInt
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform

PROPORTION = (96, 160, 256)
"""Dimensions of the members of the published embedding of 512: later ones, which get the hard pairs, are larger."""

SHRINKAGE, FIRST_SCORE, NEGATIVES_TIMES = 0.06, 0.5, 2.0
"""Constants of the authors' code: score step per member, initial score, and the factor of negatives."""


@loss(
    "bier",
    title="BIER",
    family="ensemble",
    per_query=True,
    paper="Opitz, Waltner, Possegger, Bischof: BIER, boosting independent embeddings robustly (2017)",
    geometry="none",
    references="batch",
    takes="batch",
    search={"beta1": Uniform(1.0, 4.0), "beta2": Uniform(0.3, 0.7), "lambda_div": LogUniform(1e-6, 1e-2)},
    exempt={
        **EXEMPT,
        "finite differences": "the weights w are held constant in the gradient",
    },
)
class BoostedMembers(nn.Module):
    """Online gradient boosting over the members of an ensemble: each learns the pairs that those before it got wrong.

    L = mean_m ( mean_{positives} w^m ℓ(s^m) + mean_{negatives} w^m ℓ(s^m) ) + lambda_div · R, s^m the cosine within
    member m, ℓ(s) = log(1 + e^{−a(s)}), a(s) = beta1 (s − beta2) c, c = 1 for positives and −c_neg for negatives.
    Weights carry no gradient; w¹ = 1. boosting='eta': w^{m+1} = σ(−a(S^m)), S^m = (1 − η) S^{m−1} + η s^m,
    η = 2/(m + 1), S⁰ = 0. 'shrinkage', the authors' code: w^{m+1} = σ(−A^m), twice that for negatives,
    A^m = A^{m−1} + 0.06 a(s^m), A⁰ = 0.5.
    R, over the outputs f of the members i < j, not scaled to unit length: diversity='activation' (BIER):
    Σ mean_{n,k,l} (f_i[n,k] f_j[n,l])²; 'adversarial' (A-BIER): −Σ mean (f_i ⊙ r(f_j))² with regressors r of `hidden`
    units that learn to predict f_i from f_j while the members, by a reversed gradient, learn to be unpredictable, plus
    lambda_w times the squares by which the rows of r differ from unit length, and by which its biases exceed it. At a
    learning rate made for proxies the regressors outrun the members: give the objective 1e-4, say, in its place.
    `sizes` are the dimensions of the members, in the proportion 96 : 160 : 256 unless given. The
    method also lets the last layer alone learn from R and keeps its rows at unit length, which is up to the network.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        sizes: Sequence[int] | None = None,
        beta1: PositiveFloat = 2.0,
        beta2: float = 0.5,
        c_neg: PositiveFloat = 25.0,
        boosting: Literal["eta", "shrinkage"] = "eta",
        diversity: Literal["none", "activation", "adversarial"] = "activation",
        lambda_div: NonNegativeFloat = 5e-5,
        lambda_w: NonNegativeFloat = 1e5,
        hidden: PositiveInt = 512,
    ) -> None:
        super().__init__()
        if sizes is not None and not (all(size in range(1, dim + 1) for size in sizes) and sum(sizes) == dim):
            raise EquimetricError(f"sizes of bier must be whole numbers of 1 or more with the sum {dim}, got {sizes}")
        self.sizes = list(sizes) if sizes is not None else proportional_sizes(dim, PROPORTION, "bier")
        self.beta1, self.beta2, self.c_neg = beta1, beta2, c_neg
        self.boosting, self.diversity = boosting, diversity
        self.lambda_div, self.lambda_w = lambda_div, lambda_w
        # A learner that lets the last layer alone learn from R computes it from other outputs.
        self.includes_diversity = True
        size_pairs = combinations(self.sizes, 2) if diversity == "adversarial" else ()
        self.regressors = nn.ModuleList(Regressor(larger, hidden, smaller) for smaller, larger in size_pairs)

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of a batch."""
        outputs = member_slices(ops.require.batch_embeddings(pairs, "bier"), self.sizes, "bier")
        value = self.boost(pairs, [ops.unit(output) for output in outputs])
        return value + self.lambda_div * self.penalty(outputs) if self.includes_diversity and self.diverse else value

    @property
    def diverse(self) -> bool:
        """Whether members are kept unlike each other."""
        return self.lambda_div > 0 and self.diversity != "none" and len(self.sizes) > 1

    def penalty(self, outputs: Sequence[Tensor]) -> Tensor:
        """R, from the outputs of the members."""
        return self.activation_penalty(outputs) if self.diversity == "activation" else self.adversarial_penalty(outputs)

    def margin(self, similarity: Tensor, negative: Tensor) -> Tensor:
        """(…, B) a: how far pairs are on the correct side."""
        return (similarity - self.beta2) * torch.where(negative, -self.beta1 * self.c_neg, self.beta1).to(similarity)

    def boost(self, pairs: Pairs, members: Sequence[Tensor]) -> Tensor:
        """The mean of the members' losses, each over pairs weighted by the scores of the members before."""
        counts = pairs.weight
        totals = [ops.special.count(mask, counts, members[0].dtype) for mask in (pairs.positive, pairs.negative)]

        def loss(weighted: Pairs) -> Tensor:
            terms = softplus(-self.margin(weighted.similarity, weighted.negative))
            masks = (weighted.positive, weighted.negative)
            sums = [ops.special.ratio(ops.special.masked_sum(terms, mask, weighted.weight), None) for mask in masks]
            return ops.divide(sums[0], totals[0]) + ops.divide(sums[1], totals[1])

        values, weight, score = [], None, None
        for member, vectors in enumerate(members, start=1):
            similarity = ops.special.inner_products(vectors, vectors)
            values.append(ops.special.compute_separable(loss, pairs.replace(similarity=similarity, weight=weight)))
            if member < len(members):
                with torch.no_grad():
                    score = self.score(score, similarity, pairs.negative, member)
                    weight = self.weight(score, pairs.negative)
                    weight = weight if counts is None else weight * counts
        return torch.stack(values).mean(0)

    def score(self, score: Tensor | None, similarity: Tensor, negative: Tensor, member: int) -> Tensor:
        """(B, B) scores of the pairs by the members up to member `member`."""
        if self.boosting == "shrinkage":
            return SHRINKAGE * self.margin(similarity, negative) + (FIRST_SCORE if score is None else score)
        # The first member counts for all that came before it.
        return similarity if score is None else score.lerp(similarity, 2 / (member + 1))

    def weight(self, score: Tensor, negative: Tensor) -> Tensor:
        """(B, B) weight of each pair for the next member: the larger, the worse its score."""
        if self.boosting == "shrinkage":
            return torch.sigmoid(-score) * torch.where(negative, NEGATIVES_TIMES, 1.0).to(score)
        return torch.sigmoid(-self.margin(score, negative))

    def activation_penalty(self, outputs: Sequence[Tensor]) -> Tensor:
        """Σ_{i<j} mean_{n,k,l} (f_i[n,k] f_j[n,l])²."""
        powers = [output.square().mean(1) for output in outputs]
        return torch.stack([ops.mean(power_i * power_j) for power_i, power_j in combinations(powers, 2)]).sum(0)

    def adversarial_penalty(self, outputs: Sequence[Tensor]) -> Tensor:
        """The term that regressors maximise and members minimise, with the regressors' own penalties."""
        reversed_ = [ops.special.scale_gradient(output, -1.0) for output in outputs]
        value = outputs[0].new_zeros(())
        for regressor, (smaller, larger) in zip(self.regressors, combinations(reversed_, 2), strict=True):
            assert isinstance(regressor, Regressor)
            error = ops.mean((smaller * regressor(larger)).square().mean(1))
            value = value - error + self.lambda_w * regressor.penalty()
        return value


class Regressor(nn.Module):
    """Predicts the output of one member from that of another; it starts with rows of unit length and without bias."""

    def __init__(self, dim: int, hidden: int, target_dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(dim, hidden)
        self.second = nn.Linear(hidden, target_dim)
        with torch.no_grad():
            for layer in (self.first, self.second):
                layer.weight.copy_(ops.unit(torch.randn_like(layer.weight)))
                layer.bias.zero_()

    def forward(self, output: Tensor) -> Tensor:
        """(B, dim) → (B, target_dim)."""
        return ops.special.linear(self.second, ops.special.linear(self.first, output).relu())

    def penalty(self) -> Tensor:
        """The mean (‖row‖² − 1)² of each layer's rows, and [‖bias‖² − 1]₊."""
        first, second = (
            (layer.weight.square().sum(1) - 1).square().mean() + (layer.bias.square().sum() - 1).relu()
            for layer in (self.first, self.second)
        )
        return first + second
