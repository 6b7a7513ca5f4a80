"""Sigmoid loss: every pair classified by itself, as in SigLIP."""

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform


@loss(
    "sigmoid",
    title="Sigmoid",
    family="ranking",
    separable=True,
    paper="Zhai, Mustafa, Kolesnikov, Beyer: Sigmoid loss for language image pre-training (2023)",
    search={"initial_scale": LogUniform(1.0, 100.0), "initial_bias": Uniform(-20.0, 0.0)},
    known_as=("SigLIP", "SigLipLoss", "SigmoidContrastiveLoss"),
)
class SigmoidLoss(nn.Module):
    """Classify each pair independently as positive or negative: no softmax ties the pairs of a batch together.

    L = 1/B Σ_i Σ_j −log σ(± (e^τ s_ij + b)), + for positives, − for negatives; τ and b are learned, from
    e^τ = `initial_scale` and b = `initial_bias`. For pairs of two encoders, such as images with their texts, give one
    as embeddings and the other as references: objective(images, ids, texts, ids).
    """

    def __init__(self, *, initial_scale: PositiveFloat = 10.0, initial_bias: float = -10.0) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(float(initial_scale)).log())
        self.bias = nn.Parameter(torch.tensor(float(initial_bias)))

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of pairs."""
        logits = self.log_scale.to(pairs.similarity).exp() * pairs.similarity + self.bias.to(pairs.similarity)
        values = softplus(torch.where(pairs.positive, -logits, logits))
        return ops.mean(ops.row_sum(values, pairs.mask, pairs.weight))
