"""The peak memory of a run."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import torch

from equimetric.runs.result import Memory

__all__ = ["PeakMemory"]

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """The peak memory of this process and of its GPU from now on.

    The process's peak is its resident set, with libraries, data, and memory held since earlier runs in this process.
    Linux can reset that peak; elsewhere, or without permission, it is the peak since the process started. Of several
    processes that train together only this one is measured.
    """

    def __init__(self, *, cuda: bool) -> None:
        self.cuda = cuda
        with suppress(OSError):
            RESET.write_text("5")
        if cuda:
            torch.cuda.reset_peak_memory_stats()

    def read(self) -> Memory | None:
        """The peak so far; None on a system that does not report it."""
        process = peak_of_process()
        device = torch.cuda.max_memory_allocated() if self.cuda else None
        return None if process is None else Memory(process=process, device=device)


def peak_of_process() -> int | None:
    """Bytes of the largest resident set since the start of the process or the last reset."""
    with suppress(OSError):
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    with suppress(ImportError):
        import resource

        # macOS counts bytes, other systems KiB.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return None
