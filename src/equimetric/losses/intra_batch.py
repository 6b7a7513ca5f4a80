"""Intra-Batch Connections: embeddings that exchange messages with the whole batch, in training alone."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout

from equimetric import ops
from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.option_values import PositiveFloat, PositiveInt, UnitFraction
from equimetric.pairs import Pairs
from equimetric.search_space import Choice, LogUniform


class MessageLayer(nn.Module):
    """One round of messages: attention of every sample to all samples of the batch, itself included, then two layers.

    h ← LN(h + a), h ← LN(h + F₂ relu(F₁ h)), a_i = O [Σ_j α_ij v_j] over the heads,
    α_ij = e^{s_ij} / (1 + Σ_j e^{s_ij}), s_ij = q_i·k_j / √(dim/heads): a softmax with one silent logit 0.
    """

    def __init__(self, dim: int, heads: int, hidden: int, dropout_p: float) -> None:
        super().__init__()
        self.heads, self.dropout_p = heads, dropout_p
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.widen, self.narrow = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.norm_messages, self.norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        for layer in (self.query, self.key, self.value, self.out, self.widen, self.narrow):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, vectors: Tensor, counts: Tensor | None = None) -> Tensor:
        """(B, D) → (B, D); a sample sends its message (B,) `counts`."""
        vectors = ops.special.layer_norm(self.norm_messages, vectors + self.drop(self.messages(vectors, counts)))
        widened = self.drop(ops.special.linear(self.widen, vectors).relu())
        return ops.special.layer_norm(self.norm, vectors + self.drop(ops.special.linear(self.narrow, widened)))

    def messages(self, vectors: Tensor, counts: Tensor | None) -> Tensor:
        """(B, D) what each sample receives."""
        query, key, value = (
            ops.special.linear(layer, vectors).view(len(vectors), self.heads, -1).transpose(0, 1)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[2])
        if counts is not None:
            scores = scores + counts.to(scores).log()
        attention = torch.cat([torch.zeros_like(scores[..., :1]), scores], 2).softmax(2)[..., 1:]
        attended = (self.drop(attention) @ value).transpose(0, 1).flatten(1)
        return ops.special.linear(self.out, attended)

    def drop(self, values: Tensor) -> Tensor:
        """Dropout in training."""
        return dropout(values, self.dropout_p, self.training)


@loss(
    "intra_batch",
    title="Intra-Batch Connections",
    family="contextual",
    per_query=True,
    paper="Seidenschwarz, Elezi, Leal-Taixé: Learning intra-batch connections for deep metric learning (2021)",
    geometry="none",
    references="batch",
    takes="batch",
    search={"temperature": LogUniform(0.05, 1.0), "layers": Choice((1, 2)), "heads": Choice((1, 2, 4, 8))},
    exempt={
        "multiplicity": "rows and columns are the same samples: columns cannot be repeated alone",
        "monotone": "messages pass through the whole batch, not along single pairs",
    },
    known_as=("IBC", "MPN", "IntraBatchConnections"),
)
class IntraBatchConnections(nn.Module):
    """Classify each embedding by itself and after messages from the whole batch; the embedding alone is deployed.

    L = CE(z / T, y) + CE(z' / T, y), T = `temperature`, targets (1 − ε) one-hot + ε/C, ε = `label_smoothing`.
    z = A x + b of the raw embedding x; h⁰ = M x/‖x‖ + m; `layers` rounds of messages with `heads` heads and dropout
    make h¹, h², …: a_i = O [Σ_j α_ij v_j], α_ij = e^{s_ij} / (1 + Σ_j e^{s_ij}), s_ij = q_i·k_j / √(dim/heads), all j,
    h ← LN(h + a), h ← LN(h + F₂ relu(F₁ h)), F₁ to `hidden` dimensions, 4 · dim unless given. z' = A' BN(h) of the
    last h, or with `concat` of all side by side; BN by the batch, without a shift. A sample of weight w sends its
    message w times. Everything here is of training alone: about dim² + 12 dim² · layers + 2 · classes · dim parameters.
    """

    def __init__(
        self,
        *,
        classes: PositiveInt,
        dim: PositiveInt,
        temperature: PositiveFloat = 0.2,
        layers: PositiveInt = 1,
        heads: PositiveInt = 2,
        hidden: PositiveInt | None = None,
        concat: bool = False,
        dropout: UnitFraction = 0.1,
        label_smoothing: UnitFraction = 0.1,
    ) -> None:
        super().__init__()
        if dim % heads:
            raise EquimetricError(
                f"intra_batch splits the embedding among its heads, but {heads} do not divide dim={dim}; "
                "set heads to a divisor"
            )
        self.temperature, self.concat, self.label_smoothing = temperature, concat, label_smoothing
        self.classifier, self.start = nn.Linear(dim, classes), nn.Linear(dim, dim)
        self.layers = nn.ModuleList(MessageLayer(dim, heads, hidden or 4 * dim, dropout) for _ in range(layers))
        width = dim * layers if concat else dim
        self.norm = ops.special.BatchNorm(width, shift=False)
        self.second = nn.Linear(width, classes, bias=False)
        nn.init.normal_(self.second.weight, std=0.001)

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of a batch."""
        embeddings, labels = ops.require.whole_batch(pairs, "intra_batch", self.classifier.in_features)
        ops.require.class_labels(pairs, "intra_batch", classes=self.classifier.out_features)
        embeddings = embeddings.to(torch.promote_types(embeddings.dtype, self.classifier.weight.dtype))
        refined = self.refine(embeddings, pairs.query_weight)
        refined = ops.special.linear(self.second, self.norm(refined, pairs.query_weight))
        return self.classify(ops.special.linear(self.classifier, embeddings), labels) + self.classify(refined, labels)

    def refine(self, embeddings: Tensor, counts: Tensor | None = None) -> Tensor:
        """(B, D) embeddings after all messages; with `concat` (B, D · layers)."""
        vectors, outputs = ops.special.linear(self.start, ops.unit(embeddings)), []
        for layer in self.layers:
            vectors = layer(vectors, counts)
            outputs.append(vectors)
        return torch.cat(outputs, 1) if self.concat else vectors

    def classify(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The smoothed cross-entropy of (B, C) logits."""
        smoothing = self.label_smoothing
        values = cross_entropy(logits / self.temperature, labels, reduction="none", label_smoothing=smoothing)
        return ops.mean(values)
