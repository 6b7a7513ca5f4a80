"""Group Loss: labels spread through the batch along the similarities of its samples."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import NonNegativeFloat, PositiveFloat, PositiveInt
from equimetric.pairs import Pairs
from equimetric.search_space import Choice, LogUniform

EPS = 1e-12
"""Added to a probability before its logarithm."""


@loss(
    "group",
    title="Group Loss",
    family="contextual",
    per_query=True,
    paper="Elezi, Vascon, Torcinovich, Pelillo, Leal-Taixé: The Group Loss for deep metric learning (2020)",
    geometry="none",
    references="batch",
    takes="batch",
    search={"temperature": LogUniform(1.0, 100.0), "iterations": Choice((1, 2, 3, 5)), "anchors": Choice((1, 2, 3))},
    exempt={
        "permutation": "draws the anchors of each class at random",
        "static shapes": "draws the anchors of each class at random",
        "multiplicity": "rows and columns are the same samples: columns cannot be repeated alone",
        "monotone": "labels spread through the whole batch, not along single pairs",
    },
)
class GroupLoss(nn.Module):
    """A classifier's guesses, made consistent among similar samples of the batch, must be the right labels.

    W_ij = [corr(x_i, x_j)]₊ over the coordinates of raw embeddings, W_ii = 1. X⁰_i is the one-hot label of an anchor
    and softmax(z_i / temperature) of any other sample, z = A x + b the logits of all `classes`. `iterations` times
    X ← X ⊙ W X, rows scaled to sum 1. L = −mean_i log(X_{i,y_i} + 10⁻¹²) + weight_ce · mean_i −log softmax(z_i)_{y_i}.
    Of each class `anchors` samples are anchors, drawn anew for every batch: they stay what they are, contribute 0, and
    count among the B samples of the mean. A sample of weight w supports others w times; one of weight 0 is no anchor.
    """

    def __init__(
        self,
        *,
        classes: PositiveInt,
        dim: PositiveInt,
        temperature: PositiveFloat = 24.0,
        iterations: PositiveInt = 1,
        anchors: PositiveInt = 2,
        weight_ce: NonNegativeFloat = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.classifier = nn.Linear(dim, classes)
        self.temperature, self.iterations, self.anchors = temperature, iterations, anchors
        self.weight_ce = weight_ce
        self.generator = generator

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of a batch."""
        embeddings, labels = ops.require.whole_batch(pairs, "group", self.classifier.in_features)
        ops.require.class_labels(pairs, "group", classes=self.classifier.out_features)
        embeddings = embeddings.to(torch.promote_types(embeddings.dtype, self.classifier.weight.dtype))
        logits = ops.special.linear(self.classifier, embeddings)
        weight = pairs.query_weight
        is_anchor = draw_anchors(labels, self.anchors, weight, self.generator)
        probs = self.assign(embeddings, logits, labels, is_anchor, weight)
        group = -(probs.gather(1, labels[:, None])[:, 0] + EPS).log()
        return ops.mean(group) + self.weight_ce * ops.mean(cross_entropy(logits, labels, reduction="none"))

    def assign(
        self, embeddings: Tensor, logits: Tensor, labels: Tensor, is_anchor: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """(B, C) the class probabilities of each sample after the replicator dynamics."""
        support = correlations(embeddings)
        if weight is not None:
            support = support * weight.to(support)
        prior = (logits / self.temperature).softmax(1)
        probs = torch.where(is_anchor[:, None], one_hot(labels, logits.shape[1]).to(prior), prior)
        for _ in range(self.iterations):
            probs = probs * (support @ probs)
            probs = ops.divide(probs, probs.sum(1, keepdim=True))
        return probs


def correlations(embeddings: Tensor) -> Tensor:
    """(B, B) [Pearson correlation]₊ of the coordinates; of a constant vector 0, with itself 1."""
    centred = embeddings - embeddings.mean(1, keepdim=True)
    norms = [torch.linalg.vector_norm(vectors.detach(), dim=1, keepdim=True) for vectors in (centred, embeddings)]
    # What is left of a constant vector is rounding, without a direction.
    varies = norms[0] > 16 * torch.finfo(embeddings.dtype).eps * norms[1]
    units = ops.unit(torch.where(varies, centred, 0.0))
    eye = torch.eye(len(units), dtype=torch.bool, device=units.device)
    return torch.where(eye, 1.0, ops.special.inner_products(units, units).relu())


def draw_anchors(
    labels: Tensor, max_anchors: int, weight: Tensor | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """(B,) bool: up to `max_anchors` samples of each class, drawn among those of weight above 0."""
    random = torch.rand(len(labels), generator=generator, device=None if generator is None else generator.device)
    random = random.to(labels.device)
    present = torch.ones_like(labels, dtype=torch.bool) if weight is None else weight > 0
    order = torch.arange(len(labels), device=labels.device)
    is_before = (random < random[:, None]) | ((random == random[:, None]) & (order < order[:, None]))
    earlier = (labels[:, None] == labels) & is_before & present
    return present & (earlier.sum(1) < max_anchors)
