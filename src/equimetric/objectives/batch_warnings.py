"""Warnings, once for each objective, of a batch that teaches nothing: without one kind of pairs, or not finite."""

import warnings
from math import isnan

from torch import Tensor

from equimetric.ops.products import is_tracing
from equimetric.references.base import PairTerms

__all__ = ["BatchWarnings"]

REASONS = {
    "negative": "all that is compared is of one class; a batch needs two classes or more",
    "positive": "no class is there twice; a batch needs two samples of a class",
}


class BatchWarnings:
    """What an objective has warned of already; a copy starts with the same."""

    def __init__(self) -> None:
        self.given: set[str] = set()

    def check(self, name: str, value: Tensor, terms: PairTerms) -> None:
        """Warn where a value is 0 or NaN because of its batch.

        Only the value is looked at, and only where that costs nothing: not on an accelerator, which would have to be
        waited for, and not while a graph is traced.
        """
        if value.ndim or not value.is_cpu or is_tracing():
            return
        number = value.item()
        if number == 0:
            self.explain_zero(name, terms)
        elif isnan(number) and terms.factor is not None and terms.factor.isnan().any():
            self.warn(
                "NaN",
                f"{name!r} is NaN for a batch with NaN or infinite embeddings, and so are its gradients; look for the "
                "first of them in the inputs, or lower the learning rate",
            )

    def explain_zero(self, name: str, terms: PairTerms) -> None:
        """Warn where there are no positive, or no negative pairs."""
        sets = [pairs for _, pairs in terms.weighted_pairs if pairs.similarity.shape[1]]
        for kind, reason in REASONS.items():
            if sets and not any(bool(getattr(pairs, kind).any()) for pairs in sets):
                self.warn(kind, f"{name!r} is 0 for a batch without {kind} pairs, which teaches nothing: {reason}")
                return

    def warn(self, kind: str, message: str) -> None:
        """Warn of this kind of batch the first time."""
        if kind not in self.given:
            self.given.add(kind)
            warnings.warn(message, stacklevel=2)
