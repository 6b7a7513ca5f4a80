"""Hard negative classes for N-pair batches."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from equimetric.batches.base import require_at_least
from equimetric.batches.mined import MinedBatches
from equimetric.batches.n_pairs import NPairBatches
from equimetric.batches.registry import batches

__all__ = ["HardClassBatches", "hard_classes"]


@batches("hard_classes")
class HardClassBatches(NPairBatches, MinedBatches):
    """N-pair batches of classes that are hard to tell apart (Sohn 2016), in rows a_1 … a_N, p_1 … p_N.

    For each batch a pair of samples is drawn from each of `candidates` random classes. Starting with a random class,
    the one that most violates its triples with the classes chosen so far is added until there are N. Similarities are
    dot products of the embeddings of the last `refresh`.
    """

    def __init__(
        self,
        labels: Tensor,
        *,
        classes_per_batch: int,
        candidates: int | None = None,
        batches: int | None = None,
        same_image: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__(labels, classes_per_batch=classes_per_batch, batches=batches, same_image=same_image, seed=seed)
        self.candidates = min(10 * classes_per_batch, len(self.members)) if candidates is None else candidates
        require_at_least(classes_per_batch, candidates=self.candidates)
        self.require_classes(self.candidates, "candidates")

    def mine(self, embeddings: Tensor) -> dict[str, Tensor]:
        """The embeddings themselves, since every batch compares other pairs."""
        return {"embeddings": embeddings}

    def units(self, index: int) -> Tensor:
        """(N, 2) anchor and positive of each class."""
        pairs = self.random_pairs(self.candidates, self.batch_generator(index))
        anchors, positives = self.get_mined("embeddings")[pairs].unbind(1)
        # The classes are in random order, so the first is a random one.
        return pairs[hard_classes(anchors @ positives.T, self.units_per_batch)]


def hard_classes(similarity: Tensor, k: int) -> list[int]:
    """`k` classes, starting with the first, each the hardest against those before it.

    `similarity` (K, K) holds a_x · p_y. Two classes violate their triples by
    softplus(a_x·p_y − a_x·p_x) + softplus(a_y·p_x − a_y·p_y); the next class has the largest mean over those chosen.
    """
    violation = softplus(similarity - similarity.diagonal()[:, None])
    violation = violation + violation.T
    chosen = [0]
    # The sum gives the same order as the mean.
    total = violation[0].clone()
    while len(chosen) < k:
        total[chosen] = -torch.inf
        chosen.append(int(total.argmax()))
        total = total + violation[chosen[-1]]
    return chosen
