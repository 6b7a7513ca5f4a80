"""Worker processes: fresh interpreters that execute what their parent sends through a pipe.

They do not import the caller's script, as those of multiprocessing would. A terminal sends Ctrl-C to all its processes;
workers do not receive it, their parent stops them. When the parent dies, even by SIGKILL, their input ends and they
exit at once.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Self, TypeVar

__all__ = [
    "Message",
    "WorkerEnded",
    "WorkerProcess",
    "listen_to_parent",
    "separate_output",
    "serve_parent",
    "start_interpreter",
]

Item = TypeVar("Item")

Message = Sequence[bytes | bytearray | memoryview]
"""Pieces of bytes, sent unchanged."""
SIZE_BYTES = 8


def start_interpreter(module: str, **options: Any) -> subprocess.Popen[Any]:
    """A new interpreter that runs a module with one thread, its input and output piped; `options` as of Popen."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, **options
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


class WorkerEnded(Exception):  # noqa: N818  (an event; what it means is up to who started the worker)
    """A worker has ended without an answer: it was killed, or crashed."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"a worker process ended without an answer (exit code {exit_code})")
        self.exit_code = exit_code


class WorkerProcess:
    """A new interpreter that runs a module, which calls `serve_parent`; as a context, it ends with it.

    descriptors  open files that the process inherits, under the same numbers
    """

    def __init__(self, module: str, *, descriptors: Sequence[int] = ()) -> None:
        self.process: subprocess.Popen[bytes] = start_interpreter(module, pass_fds=descriptors)

    def send(self, message: Message) -> None:
        """Send a message; to a worker that has ended it is lost."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # Its output has ended, too.
            write_message(self.process.stdin, message)

    def receive(self) -> list[bytearray]:
        """The next message; raises `WorkerEnded` where there is none."""
        assert self.process.stdout is not None
        message = read_message(self.process.stdout)
        if message is None:
            raise WorkerEnded(self.process.wait())
        return message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


def serve_parent(handle: Callable[[list[bytearray], Callable[[Message], None]], None]) -> None:
    """Call `handle` with every message of the parent, and with what sends messages back, until the input ends."""
    answers = os.fdopen(separate_output(), "wb")
    messages = listen_to_parent(iter(lambda: read_message(sys.stdin.buffer), None))
    try:
        while True:
            handle(messages.get(), lambda message: write_message(answers, message))
    except BrokenPipeError:
        # The listening thread holds the input, which would make an ordinary exit crash.
        os._exit(0)


def separate_output() -> int:
    """A descriptor of the standard output; what libraries print goes to standard error from here on."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return descriptor


def listen_to_parent(messages: Iterable[Item]) -> queue.SimpleQueue[Item]:
    """Queue the messages of a parent as they come; at their end the process exits at once."""
    inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()

    def listen() -> None:
        for message in messages:
            inbox.put(message)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    return inbox


def write_message(stream: IO[bytes], message: Message) -> None:
    """Write the number of pieces, their sizes and the pieces."""
    sizes = [len(message), *(memoryview(piece).nbytes for piece in message)]
    stream.write(b"".join(size.to_bytes(SIZE_BYTES, "little") for size in sizes))
    for piece in message:
        stream.write(piece)
    stream.flush()


def read_message(stream: IO[bytes]) -> list[bytearray] | None:
    """The next message; None at the end of the stream."""
    start = stream.read(SIZE_BYTES)
    if len(start) < SIZE_BYTES:
        return None
    count = int.from_bytes(start, "little")
    sizes = stream.read(SIZE_BYTES * count)
    pieces = []
    for index in range(len(sizes) // SIZE_BYTES):
        piece = bytearray(int.from_bytes(sizes[SIZE_BYTES * index : SIZE_BYTES * (index + 1)], "little"))
        read = 0
        while read < len(piece):
            num_bytes = stream.readinto(memoryview(piece)[read:])  # type: ignore[attr-defined]
            if not num_bytes:
                return None
            read += num_bytes
        pieces.append(piece)
    return pieces if len(pieces) == count else None
