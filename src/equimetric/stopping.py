"""Stopping on request: SIGINT (Ctrl-C) and SIGTERM end a command in one sentence, a run after its current step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

__all__ = ["StopRequest", "Stopped", "raise_stopped", "stop_on_signals"]

DEFAULTS: Mapping[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The handlers that may be replaced: a signal that is ignored, or handled by a caller, stays as it is."""

Handler = Callable[[int, FrameType | None], None]


class Stopped(KeyboardInterrupt):
    """A signal ended the work; the message says what is kept and how to go on."""

    def __init__(self, number: int, message: str = "stopped; run the same command again") -> None:
        super().__init__(message)
        self.number = number

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM, as shells count."""
        return 128 + self.number


def raise_stopped(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001  (as every handler)
    """The handler that stops at once."""
    raise Stopped(number)


@contextmanager
def handle_signals(handler: Handler) -> Iterator[None]:
    """Let a handler take SIGINT and SIGTERM inside the block; does nothing outside of the main thread."""
    replaced: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number, default in DEFAULTS.items():
            before = signal.getsignal(number)
            if before in (default, raise_stopped):
                replaced[number] = before
                signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in replaced.items():
            signal.signal(number, before)


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Inside the block a signal raises `Stopped` at once."""
    with handle_signals(raise_stopped):
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

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        if self.number is not None:
            raise_stopped(number, frame)
        self.number = number
