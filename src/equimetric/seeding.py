"""Seeds for everything random, derived from one seed and a description of what it is for."""

import hashlib

__all__ = ["derive_seed"]


def derive_seed(*parts: int | str) -> int:
    """A seed in 0 … 2³¹ − 1 that depends on all parts, e.g. `derive_seed(seed, "augmentation", step)`.

    Drawing each step from a seed of its own means that a resumed run needs no saved generator states.
    """
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
