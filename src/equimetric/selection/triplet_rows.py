"""Triplets that the batch itself lists, three rows each."""

import torch

from equimetric.components import selection
from equimetric.errors import EquimetricError
from equimetric.pairs import Pairs, Triplets


@selection(
    "triplet_rows",
    known_as=("EmbeddingsAlreadyPackagedAsTriplets",),
    paper="",
    separable=False,
    exempt={
        **dict.fromkeys(("permutation", "doubling", "multiplicity"), "the order of the rows is the list of triplets"),
        "any batch": "needs a batch of triplets, such as those of 'fixed_triplets' and 'smart_mining'",
    },
)
def triplet_rows(pairs: Pairs) -> Triplets:
    """Rows 3k, 3k + 1 and 3k + 2 of the batch are an anchor, its positive and its negative; no other triplet counts."""
    rows = len(pairs.similarity)
    if rows % 3 or rows != pairs.similarity.shape[1]:
        raise EquimetricError(
            f"selection 'triplet_rows' takes batches of triplets, three rows each, compared with themselves, not "
            f"{rows} × {pairs.similarity.shape[1]}; draw them with batch.kind = 'fixed_triplets' or 'smart_mining'"
        )
    return Triplets.from_rows(pairs, torch.arange(rows, device=pairs.similarity.device).view(-1, 3))
