"""Batch concurrent calls: while one batch is computed, the next one collects."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

__all__ = ["Batcher"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Calls `work` in a single thread with the waiting items, at most `max_batch` at a time.

    A single call never waits for others to come, and nothing that comes while a batch is computed waits longer than
    that. `work` returns one result for each item; an exception in place of a result is raised to the caller of that
    item alone.

    observe  called with the size of every batch
    """

    def __init__(
        self,
        thread: ThreadPoolExecutor,
        work: Callable[[list[Item]], Sequence[Result | Exception]],
        *,
        max_batch: int,
        observe: Callable[[int], None],
    ) -> None:
        self.thread, self.work, self.max_batch, self.observe = thread, work, max_batch, observe
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Result:
        """The result of one item."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(self.max_batch, len(self._waiting)))]
            self.observe(len(batch))
            items, futures = [item for item, _ in batch], [future for _, future in batch]
            try:
                results = await asyncio.get_running_loop().run_in_executor(self.thread, self.work, items)
            except Exception as error:
                results = [error] * len(batch)
            for future, result in zip(futures, results, strict=True):
                if future.cancelled():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
