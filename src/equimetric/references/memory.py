"""The batch and a memory of past batches as references."""

from typing import Any

import torch
from torch import Tensor

from equimetric.components import references
from equimetric.errors import EquimetricError
from equimetric.geometry import Geometry, unit
from equimetric.option_values import NonNegativeFloat, NonNegativeInt, PositiveInt
from equimetric.pairs import Queries
from equimetric.references.base import ObjectiveInputs, PairTerms, References
from equimetric.references.batch import make_pairs
from equimetric.references.relation import check_class_ids, check_embeddings
from equimetric.search_space import Choice, LogUniform

__all__ = ["MemoryReferences"]


@references(
    "memory",
    paper="Wang, Zhang, Huang, Scott: Cross-batch memory for embedding learning (2020)",
    search={
        "size": Choice((1024, 2048, 4096, 8192, 16384)),
        "start_iteration": Choice((0, 500, 1000, 2000)),
        "weight": LogUniform(0.1, 10.0),
    },
    known_as=("CrossBatchMemory", "XBM", "MoCo"),
)
class MemoryReferences(References):
    """The last `size` embeddings of past batches are further references.

    L = L(batch, batch) + weight · L(batch, memory), for any loss of pairs, with its selection applied to both. The
    memory is a ring buffer of detached embeddings and class ids, and of the samples' weights where they have any; a
    batch is stored after its own loss is computed, so no sample is compared with itself. The memory stays empty for the
    first `start_iteration` training steps, because early embeddings drift too fast: a run of no more steps never uses
    it. In evaluation mode the memory is read, never changed.
    """

    embeddings: Tensor
    labels: Tensor
    pointer: Tensor
    filled: Tensor
    iteration: Tensor
    weights: Tensor | None

    def __init__(
        self,
        *,
        dim: PositiveInt,
        size: PositiveInt = 8192,
        start_iteration: NonNegativeInt = 1000,
        weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__()
        self.size = size
        self.start_iteration = start_iteration
        self.memory_weight = weight
        self.register_buffer("embeddings", torch.zeros(size, dim))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.int64))
        # Kept once a batch has weights, and only then part of the state.
        self.register_buffer("weights", None)
        for counter in ("pointer", "filled", "iteration"):
            self.register_buffer(counter, torch.zeros((), dtype=torch.int64))

    def forward(self, geometry: Geometry, normalize: bool, inputs: ObjectiveInputs) -> PairTerms:
        """Make the (B, B) pairs of the batch and, once the memory is in use, its (B, filled) pairs with the memory."""
        inputs.reject_reference_set("its batch and a memory")
        embeddings = check_embeddings(inputs.embeddings)
        labels = check_class_ids(inputs.labels, embeddings)
        dim = self.embeddings.shape[1]
        if embeddings.shape[1] != dim:
            raise EquimetricError(f"embeddings have dimension {embeddings.shape[1]}, the memory {dim}; give dim=…")
        if normalize:
            embeddings = unit(embeddings)
        queries = Queries(embeddings, labels, inputs.index, weight=inputs.sample_weight)
        weighted_pairs = [(1.0, make_pairs(geometry, queries, labels, embeddings, labels, same_set=True))]
        filled = int(self.filled) if int(self.iteration) >= self.start_iteration else 0
        if filled:
            stored = self.embeddings[:filled].to(embeddings)
            weight = None if self.weights is None else self.weights[:filled].to(embeddings)
            pairs = make_pairs(geometry, queries, labels, stored, self.labels[:filled], reference_weight=weight)
            weighted_pairs.append((self.memory_weight, pairs))
        return PairTerms(weighted_pairs)

    def after_loss(self, terms: PairTerms) -> None:
        """Count the training step and, from `start_iteration` on, store the batch, unless it holds NaN."""
        if not self.training:
            return
        if int(self.iteration) >= self.start_iteration and not terms.has_nan():
            queries = terms.weighted_pairs[0][1].queries
            assert queries is not None
            assert queries.labels is not None
            self.store(queries.embeddings, queries.labels, queries.weight)
        self.iteration += 1

    def delayed_start(self) -> tuple[str, int, str]:
        """The part that starts late, the batches before it and the option; the memory then holds the previous batch."""
        return "memory", self.start_iteration + 1, "start_iteration"

    @torch.no_grad()
    def store(self, embeddings: Tensor, labels: Tensor, weight: Tensor | None = None) -> None:
        """Overwrite the oldest entries; of a batch larger than the memory, keep the last rows."""
        embeddings, labels = embeddings[-self.size :], labels[-self.size :]
        if weight is not None and self.weights is None:
            self.weights = torch.ones_like(self.embeddings[:, 0])
        count = len(labels)
        indices = (self.pointer + torch.arange(count, device=labels.device)) % self.size
        # New tensors instead of writing in place: the backward pass still reads the old ones.
        self.embeddings = self.embeddings.index_copy(0, indices, embeddings.to(self.embeddings))
        self.labels = self.labels.index_copy(0, indices, labels)
        if self.weights is not None:
            weight = torch.ones_like(embeddings[:, 0]) if weight is None else weight[-self.size :]
            self.weights = self.weights.index_copy(0, indices, weight.to(self.weights))
        self.pointer = (self.pointer + count) % self.size
        self.filled = (self.filled + count).clamp_max(self.size)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        has_weights = prefix + "weights" in state_dict
        self.weights = torch.ones_like(self.embeddings[:, 0]) if has_weights else None
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def extra_repr(self) -> str:
        """Size, fill level and first step, for `repr`."""
        shape = f"size={self.size}, filled={int(self.filled)}, dim={self.embeddings.shape[1]}"
        return f"{shape}, start_iteration={self.start_iteration}"
