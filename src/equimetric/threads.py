"""CPU threads: a fixed number of them, or work spread over them so that their number changes no bit."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

__all__ = ["parallel_map", "use_threads"]

Item = TypeVar("Item")
Result = TypeVar("Result")

PREFETCH_PER_THREAD = 2
"""Items per thread that are computed before the first is used."""


@contextmanager
def use_threads(n: int) -> Iterator[None]:
    """Compute with n threads inside the block: their number changes the last digits of sums."""
    previous = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


def parallel_map(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """`function` of each item, in order, on as many threads as torch uses here; for use without gradient.

    Every call computes with one thread, so that the number of threads changes no bit of its result. Few items per
    thread are computed ahead.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield from map(function, items)
        return
    # Even one item: to change the number of threads of this one is slower than to hand it over.
    pool, pending, without_grad = _thread_pool(threads, os.getpid()), deque[Future[Result]](), torch.no_grad()(function)
    for item in items:
        pending.append(pool.submit(without_grad, item))
        if len(pending) > PREFETCH_PER_THREAD * threads:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


@cache
def _thread_pool(threads: int, process: int) -> ThreadPoolExecutor:  # noqa: ARG001  (threads do not survive a fork)
    """Worker threads, each of which computes with one thread."""
    started = threading.Barrier(threads + 1)

    def init_thread() -> None:
        torch.get_num_threads()  # a thread that never asked would take the default at its first operation
        torch.set_num_threads(1)
        started.wait()

    pool = ThreadPoolExecutor(threads, "parallel_map", init_thread)
    with use_threads(torch.get_num_threads()):  # what a worker sets is also the default of threads to come
        for _ in range(threads):
            pool.submit(int)
        started.wait()
    return pool
