"""A process that reads ranges of bands of a scan for its parent: `python -m equimetric.evaluation.parallel.worker`."""

from __future__ import annotations

import mmap
import pickle
import sys
import time
import traceback
import warnings
from collections.abc import Callable

import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.scan import ScanTask
from equimetric.evaluation.parallel.packing import pack
from equimetric.evaluation.parallel.tasks import unpack_task
from equimetric.progress import set_progress_output
from equimetric.workers import Message, serve_parent

__all__ = ["main"]

SECONDS_BETWEEN_REPORTS = 0.2

Send = Callable[[Message], None]


class BandReader:
    """Executes the messages of the parent: start, read, hand over."""

    def __init__(self) -> None:
        self.task: ScanTask | None = None

    def handle(self, message: list[bytearray], send: Send) -> None:
        """Execute one message and answer."""
        try:
            kind = message[0]
            if kind == b"start":
                self.task = _open_task(*message[1:])
                return
            assert self.task is not None
            if kind == b"read":
                _read(self.task, pickle.loads(message[1]), send)
            else:
                content, buffers = pack(self.task.partials())
                send([b"partials", content, *(part.data for part in buffers)])
        except BrokenPipeError:
            raise
        except EquimetricError as error:
            send([b"refused", str(error).encode()])
        except MemoryError:
            send([b"refused", b"a worker process is out of memory; use fewer jobs"])
        except BaseException:
            send([b"failed", traceback.format_exc().encode()])


def _open_task(start: bytearray, content: bytearray) -> ScanTask:
    descriptor, spans, path = pickle.loads(start)
    # Modules of plug-ins are found as the parent finds them.
    sys.path[:] = path
    shared = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))
    return unpack_task(content, [shared[first:last] for first, last in spans])


def _read(task: ScanTask, band_range: range, send: Send) -> None:
    tiles, last = 0, time.monotonic()

    def advance(count: int) -> None:
        nonlocal tiles, last
        tiles += count
        if time.monotonic() - last > SECONDS_BETWEEN_REPORTS:
            send([b"tiles", tiles.to_bytes(8, "little")])
            tiles, last = 0, time.monotonic()

    task.run_in_worker(band_range, advance)
    send([b"tiles", tiles.to_bytes(8, "little")])
    send([b"done"])


def main() -> None:
    """Serve the parent until it finishes or exits."""
    torch.set_num_threads(1)
    set_progress_output("nothing")  # The parent shows the progress.
    warnings.simplefilter("ignore")  # The parent has shown the same warnings.
    serve_parent(BandReader().handle)


if __name__ == "__main__":
    main()
