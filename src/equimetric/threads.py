"""A fixed number of CPU threads: it changes the last digits of sums, so every run states its own."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["use_threads"]


@contextmanager
def use_threads(n: int) -> Iterator[None]:
    """Compute with n threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
