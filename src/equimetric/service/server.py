"""Run an application until a signal stops it, finishing pending requests."""

import contextlib
import errno
import socket

import uvicorn
from fastapi import FastAPI

from equimetric.errors import EquimetricError
from equimetric.stopping import Stopped

__all__ = ["bind", "run_server"]

GRACE = 30
"""Seconds that requests have to finish after a signal; a second signal does not wait."""
BACKLOG = 2048
LAST_PORT = 65535
IN_USE, FORBIDDEN, NOT_HERE = errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens."""
    if not 0 <= port <= LAST_PORT:
        raise EquimetricError(f"there is no port {port}; give one of 1024 to {LAST_PORT}, or 0 for a free one")
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with contextlib.ExitStack() as stack:
            # asyncio sends at once (TCP_NODELAY) only where a socket names its protocol; else an answer waits 40 ms.
            listening = stack.enter_context(socket.socket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
            stack.pop_all()
            return listening
    except OSError as error:
        reasons = {
            IN_USE: f"port {port} is in use; give another --port, or 0 for a free one",
            FORBIDDEN: f"port {port} is reserved; give a --port of at least 1024",
            NOT_HERE: f"{host!r} is no address of this machine; give another --host",
        }
        raise EquimetricError(
            reasons.get(error.errno or 0, f"{host!r} and port {port} cannot be used ({error}); give others")
        ) from None


def run_server(app: FastAPI, listening: socket.socket) -> None:
    """Answer requests until SIGINT or SIGTERM; those that have begun are finished first."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE, server_header=False, lifespan="on"
    )
    # uvicorn raises the signal again after it has stopped; a stop on request is no failure.
    with contextlib.suppress(Stopped):
        uvicorn.Server(config).run(sockets=[listening])
