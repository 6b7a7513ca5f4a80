"""The first entries of many random permutations at once, the same that `torch.randperm` gives one by one.

Drawing a batch takes a permutation of the classes and one of each chosen class, of which only the first entries are
used: calls that cost more than what they compute. Numpy's legacy generator is the same Mersenne Twister, so its raw
numbers are those that torch would draw, and for many batches they are used together.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw_raw", "first_of_permutations"]


def draw_raw(seeds: Sequence[int], n: int) -> NDArray[np.int64]:
    """(seeds, n) first 32-bit numbers that a generator of torch draws after `manual_seed(seed)`."""
    twister = np.random.MT19937()
    generator = np.random.RandomState(twister)
    raw = np.empty((len(seeds), n), dtype=np.int64)
    for row, seed in zip(raw, seeds, strict=True):
        generator.seed(seed)
        row[:] = twister.random_raw(n)
    return raw


def first_of_permutations(raw: NDArray[np.int64], sizes: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """(B, k) first entries of a permutation of 0 … size − 1 for each of the (B,) sizes.

    Fisher and Yates: entry i is swapped with entry i + r_i mod (size − i), where r_i is column i of the (B, ≥ k)
    raw numbers. The last entry of a permutation is what is left.
    """
    rows = np.arange(len(sizes))
    order = np.tile(np.arange(sizes.max(initial=0)), (len(sizes), 1))
    for index in range(k):
        chosen = index + raw[:, index] % np.maximum(sizes - index, 1)
        order[rows, chosen], order[:, index] = order[:, index], order[rows, chosen]
    return order[:, :k]
