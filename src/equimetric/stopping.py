"""Stopping on request: SIGINT (Ctrl-C) and SIGTERM end a command in one sentence, a run after its current step."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

__all__ = ["StopRequest", "Stopped", "end_on_signals", "raise_stopped", "stop_on_signals"]

DEFAULTS: Mapping[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""Handlers that may be replaced: a signal that is ignored, or handled by a caller, is left alone."""

Handler = Callable[[int, FrameType | None], None]


class Stopped(KeyboardInterrupt):
    """A signal ended the work; the message says what is kept and how to resume."""

    def __init__(self, signum: int, message: str = "stopped; run the same command again") -> None:
        super().__init__(message)
        self.number = signum

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM, as shells count."""
        return 128 + self.number


def raise_stopped(signum: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001  (as every handler)
    """The handler that stops at once."""
    raise Stopped(signum)


def end_or_raise(signum: int, frame: FrameType | None) -> None:
    """The handler of the command line: as `raise_stopped`, but inside an import the process ends here.

    An exception that interrupts an import is lost in it, or comes out of an extension module as another one.
    """
    if not is_importing(frame):
        raise_stopped(signum, frame)
    stop = Stopped(signum)
    if int(os.environ.get("RANK", 0)) == 0:
        os.write(2, f"equimetric: {stop}\n".encode())
    os._exit(stop.exit_code)


def is_importing(frame: FrameType | None) -> bool:
    """Whether a frame runs inside an import statement."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


@contextmanager
def handle_signals(handler: Handler) -> Iterator[None]:
    """Let a handler take SIGINT and SIGTERM inside the block; does nothing outside of the main thread."""
    replaced: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for signum, default in DEFAULTS.items():
            previous = signal.getsignal(signum)
            if previous in (default, raise_stopped, end_or_raise):
                replaced[signum] = previous
                signal.signal(signum, handler)
    try:
        yield
    finally:
        for signum, previous in replaced.items():
            signal.signal(signum, previous)


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Inside the block a signal raises `Stopped` at once."""
    with handle_signals(raise_stopped):
        yield


@contextmanager
def end_on_signals() -> Iterator[None]:
    """Inside the block a signal raises `Stopped` at once, or ends the process in one sentence while it imports."""
    with handle_signals(end_or_raise):
        yield


class StopRequest:
    """Inside `watch()` the first signal is only noted, for a loop that looks at it between two steps.

    A second signal does not wait: it raises `Stopped` at once.
    """

    def __init__(self) -> None:
        self.number: int | None = None

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note signals inside the block."""
        with handle_signals(self.note):
            yield

    def note(self, signum: int, frame: FrameType | None) -> None:
        """The handler."""
        if self.number is not None:
            raise_stopped(signum, frame)
        self.number = signum
