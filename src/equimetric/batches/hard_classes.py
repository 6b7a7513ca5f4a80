"""Hard negative classes for N-pair batches."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from equimetric.batches.base import require_at_least
from equimetric.batches.mined import MinedBatches
from equimetric.batches.n_pairs import NPairBatches

__all__ = ["HardClassBatches", "hard_classes"]


class HardClassBatches(NPairBatches, MinedBatches):
    """N-pair batches of classes that are hard to tell apart (Sohn 2016), in rows a_1 … a_N, p_1 … p_N.

    For each batch `candidates` random classes show a pair of samples each. From a random one on, the class that
    violates its triples with those chosen so far the most is added, until there are N. Similarities are the dot
    products of the embeddings that `refresh` was given.
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
        """The embeddings themselves: every batch looks at other pairs."""
        return {"embeddings": embeddings}

    def units(self, number: int) -> Tensor:
        """(N, 2) anchor and positive of each class."""
        pairs = self.random_pairs(self.candidates, self.batch_generator(number))
        anchors, positives = self.found("embeddings")[pairs].unbind(1)
        # The classes come in random order, so the first is a random one.
        return pairs[hard_classes(anchors @ positives.T, self.units_per_batch)]


def hard_classes(similarity: Tensor, number: int) -> list[int]:
    """`number` classes, starting with the first, each the hardest against those before it.

    `similarity` (K, K) holds a_x · p_y. How much two classes violate their triples is
    softplus(a_x·p_y − a_x·p_x) + softplus(a_y·p_x − a_y·p_y); a class is judged by its mean over those chosen.
    """
    violation = softplus(similarity - similarity.diagonal()[:, None])
    violation = violation + violation.T
    chosen = [0]
    # The sum orders the classes as the mean does.
    total = violation[0].clone()
    while len(chosen) < number:
        total[chosen] = -torch.inf
        chosen.append(int(total.argmax()))
        total = total + violation[chosen[-1]]
    return chosen
