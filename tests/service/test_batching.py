"""Concurrent calls are computed together, in order, each with its own result or error."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from equimetric.service.batching import Batcher


def run(work, calls, *, max_batch=4):
    """The results of concurrent calls, and the batches in which they were computed."""
    sizes = []

    async def gather():
        batcher = Batcher(ThreadPoolExecutor(1), work, max_batch=max_batch, observe=sizes.append)
        return await asyncio.gather(*(batcher(call) for call in calls), return_exceptions=True)

    return asyncio.run(gather()), sizes


def test_what_waits_is_computed_together():
    results, sizes = run(lambda items: [2 * item for item in items], range(10))
    assert results == [2 * item for item in range(10)]
    assert sizes == [4, 4, 2]


def test_an_error_of_one_is_that_of_its_caller_alone():
    results, _ = run(lambda items: [ValueError(item) if item == 1 else item for item in items], range(3))
    assert results[0::2] == [0, 2]
    assert isinstance(results[1], ValueError)


def test_an_error_of_a_batch_is_that_of_all_its_callers_and_the_next_batch_works():
    def work(items):
        if 0 in items:
            raise RuntimeError("broken")
        return items

    results, sizes = run(work, range(6))
    assert [isinstance(one, RuntimeError) for one in results] == [True] * 4 + [False] * 2
    assert sizes == [4, 2]


def test_a_caller_who_leaves_changes_nothing_for_the_others():
    entered, leave = threading.Event(), threading.Event()

    def work(items):
        entered.set()
        leave.wait(10)
        return items

    async def call():
        batcher = Batcher(ThreadPoolExecutor(1), work, max_batch=4, observe=lambda size: None)
        first, second = (asyncio.create_task(batcher(item)) for item in (1, 2))
        await asyncio.to_thread(entered.wait, 10)
        first.cancel()
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second, await batcher(3)

    assert asyncio.run(call()) == (2, 3)
