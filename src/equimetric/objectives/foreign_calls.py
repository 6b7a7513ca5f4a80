"""Errors for calls of an objective as losses of pytorch-metric-learning are called. Needs no torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from equimetric.errors import EquimetricError

__all__ = ["check_call"]

TRIPLETS = "give triplets as triplets=torch.stack([anchors, positives, negatives], 1), or have a selection=… choose"
REFERENCES = "references follow the labels: objective(embeddings, labels, reference_embeddings, reference_labels)"

REMEDIES = {"indices_tuple": TRIPLETS, "ref_emb": REFERENCES, "ref_labels": REFERENCES}
"""Keyword of a call elsewhere → how to say it here."""


def check_call(arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Raise an error for keywords of the other library, and for indices of a miner in the place of references."""
    for keyword, remedy in REMEDIES.items():
        if keyword in options:
            raise EquimetricError(f"an objective takes no {keyword}=…; {remedy}")
    if arguments and isinstance(arguments[0], tuple):
        raise EquimetricError(f"the third argument is reference embeddings, got a tuple; {TRIPLETS}")
