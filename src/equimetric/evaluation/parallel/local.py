"""Worker processes on this machine: they map the task from a temporary file and read ranges of its bands.

Each worker takes the next range when it is done with one, and returns its partial results at the end. Arrays of the
task, the embeddings in memory among them, are in memory once for all workers; those that are mapped from a file are not
copied at all.
"""

from __future__ import annotations

import pickle
import queue
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import IO, Any

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.scan import ScanTask
from equimetric.evaluation.parallel.packing import ALIGNMENT, Bytes, address, unpack
from equimetric.evaluation.parallel.tasks import pack_task
from equimetric.workers import WorkerEnded, WorkerProcess

__all__ = ["run_local_workers", "write_spool"]

RANGES_PER_JOB = 16
"""Enough ranges that no worker waits long for the last one."""
MODULE = "equimetric.evaluation.parallel.worker"

Event = tuple[str, Any]


def run_local_workers(task: ScanTask, advance: Callable[[int], None], *, jobs: int) -> None:
    """Read all bands in up to `jobs` worker processes, of one thread each, and merge what they have read."""
    band_ranges = task.plan.split_bands(jobs * RANGES_PER_JOB)
    pending: queue.SimpleQueue[range] = queue.SimpleQueue()
    for band_range in band_ranges:
        pending.put(band_range)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    handover_lock = threading.Lock()
    with ExitStack() as stack:
        spool = stack.enter_context(tempfile.TemporaryFile(prefix="equimetric-"))
        content, buffers = pack_task(task)
        spans = write_spool(spool, buffers)
        del buffers
        start = pickle.dumps((spool.fileno(), spans, sys.path)), content
        workers = []
        for _ in range(min(jobs, len(band_ranges))):
            workers.append(stack.enter_context(WorkerProcess(MODULE, descriptors=[spool.fileno()])))
        for worker in workers:
            args = worker, start, pending, events, handover_lock
            threading.Thread(target=_serve, args=args, daemon=True).start()
        num_running = len(workers)
        while num_running:
            kind, payload = events.get()
            if kind == "tiles":
                advance(payload)
            elif kind == "error":
                raise payload
            else:
                task.merge(unpack(*payload))
                handover_lock.release()
                num_running -= 1


def _serve(
    worker: WorkerProcess,
    start: Sequence[bytes],
    pending: queue.SimpleQueue[range],
    events: queue.SimpleQueue[Event],
    handover_lock: threading.Lock,
) -> None:
    """Keep a worker busy, and forward its messages to the thread that waits for events."""
    try:
        worker.send([b"start", *start])
        while not pending.empty():
            try:
                band_range = pending.get_nowait()
            except queue.Empty:
                break
            worker.send([b"read", pickle.dumps(band_range)])
            while (message := _receive(worker))[0] == b"tiles":
                events.put(("tiles", int.from_bytes(message[1], "little")))
        # One at a time: partials may be large.
        handover_lock.acquire()
        worker.send([b"hand over"])
        _, content, *buffers = _receive(worker)
        events.put(("partials", (content, buffers)))
    except BaseException as error:
        events.put(("error", error))


def _receive(worker: WorkerProcess) -> list[bytearray]:
    """The next message that is no error."""
    try:
        message = worker.receive()
    except WorkerEnded as end:
        raise EquimetricError(
            f"a worker process ended without a result (exit code {end.exit_code}); was it killed, or out of memory? "
            "Run it again, with fewer jobs if memory is short"
        ) from None
    if message[0] == b"refused":
        raise EquimetricError(message[1].decode())
    if message[0] == b"failed":
        raise RuntimeError(f"a worker process failed:\n{message[1].decode()}")
    return message


def write_spool(spool: IO[bytes], buffers: Sequence[Bytes]) -> list[tuple[int, int]]:
    """Write arrays to a file, each at the alignment it has in memory; their spans, (start, stop)."""
    spans, end = list[tuple[int, int]](), 0
    try:
        for content in buffers:
            start = end + (address(content) - end) % ALIGNMENT
            end = start + len(content)
            spans.append((start, end))
            if content.any():  # zeros are a hole in the file
                spool.seek(start)
                spool.write(content.data)
        spool.truncate(max(end, 1))
        spool.flush()
    except OSError as error:
        raise EquimetricError(
            f"{end / 2**30:.1f} GiB that processes share cannot be written to {tempfile.gettempdir()!r} "
            f"({error.strerror}); set TMPDIR to a larger folder"
        ) from None
    return spans
