"""The batch and, beside it, a memory of past batches as references."""

from collections.abc import Callable

import torch
from torch import Tensor

from equimetric.components import references
from equimetric.errors import EquimetricError
from equimetric.geometry import Geometry
from equimetric.option_values import Count, NotNegative, Number
from equimetric.pairs import Pairs
from equimetric.references.batch import BatchReferences, compare
from equimetric.references.kind import Given, References
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
)
class MemoryReferences(References):
    """The last `size` embeddings of past batches serve as further references.

    L = L(batch, batch) + weight · L(batch, memory), for any loss of pairs and with its selection applied to both. The
    memory is a ring of detached embeddings and class ids; a batch enters after its own loss is computed, so that no
    sample meets itself. Nothing is remembered or compared before `start_iteration` training steps, because early
    embeddings drift too fast. Outside training the memory is read, never changed.
    """

    embeddings: Tensor
    labels: Tensor
    pointer: Tensor
    filled: Tensor
    iteration: Tensor

    def __init__(
        self, *, dim: Count, size: Count = 8192, start_iteration: Number = 1000, weight: NotNegative = 1.0
    ) -> None:
        super().__init__()
        self.batch = BatchReferences()
        self.size = size
        self.start_iteration = start_iteration
        self.memory_weight = weight
        self.register_buffer("embeddings", torch.zeros(size, dim))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.int64))
        for counter in ("pointer", "filled", "iteration"):
            self.register_buffer(counter, torch.zeros((), dtype=torch.int64))

    def forward(self, geometry: Geometry, normalize: bool, given: Given) -> Pairs:
        """Make the (B, B) pairs of the batch."""
        given.refuse_references("its batch and a memory")
        embeddings = check_embeddings(given.embeddings)
        labels = check_class_ids(given.labels, embeddings)
        dim = self.embeddings.shape[1]
        if embeddings.shape[1] != dim:
            raise EquimetricError(f"embeddings have dimension {embeddings.shape[1]}, the memory {dim}; give dim=…")
        pairs: Pairs = self.batch(geometry, normalize, Given(embeddings, labels, given.index))
        return pairs

    def adds(self) -> str:
        """The loss against what is remembered."""
        return "the loss against the memory" if int(self.filled) and int(self.iteration) >= self.start_iteration else ""

    def objective_value(self, loss: Callable[[Pairs], Tensor], pairs: Pairs) -> Tensor:
        """The loss of the batch + weight · the loss of the batch against the memory; then remember the batch."""
        value = loss(pairs)
        if int(self.iteration) >= self.start_iteration:
            if int(self.filled):
                value = value + self.memory_weight * loss(self.memory_pairs(pairs))
            if self.training:
                self.remember(pairs)
        if self.training:
            self.iteration += 1
        return value

    def memory_pairs(self, pairs: Pairs) -> Pairs:
        """(B, filled) the queries of these pairs against what is remembered."""
        geometry, queries = pairs.geometry, pairs.queries
        assert geometry is not None
        assert queries is not None
        assert queries.labels is not None
        filled = int(self.filled)
        remembered = self.embeddings[:filled].to(queries.embeddings)
        return compare(geometry, queries, queries.labels, remembered, self.labels[:filled])

    @torch.no_grad()
    def remember(self, pairs: Pairs) -> None:
        """Write the queries over the oldest entries; of more than the memory holds, the last."""
        queries = pairs.queries
        assert queries is not None
        assert queries.labels is not None
        embeddings, labels = queries.embeddings[-self.size :], queries.labels[-self.size :]
        number = len(labels)
        places = (self.pointer + torch.arange(number, device=labels.device)) % self.size
        # New tensors instead of writing in place: the backward pass still needs what the queries were compared with.
        self.embeddings = self.embeddings.index_copy(0, places, embeddings.to(self.embeddings))
        self.labels = self.labels.index_copy(0, places, labels)
        self.pointer = (self.pointer + number) % self.size
        self.filled = (self.filled + number).clamp_max(self.size)

    def extra_repr(self) -> str:
        """Size and fill level, for `repr`."""
        return f"size={self.size}, filled={int(self.filled)}, dim={self.embeddings.shape[1]}"
