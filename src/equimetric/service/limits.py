"""Limits on size, number and duration of requests."""

import asyncio
import time
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from equimetric.service.problems import RefusedError, problem_response

__all__ = ["Limits", "RequestLimitMiddleware"]

MEGABYTE = 10**6
DRAIN_FACTOR = 8
"""Multiple of the limit that is still read, so that a client receives the error response."""


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    body        bytes of a request
    pixels      pixels of an image, width × height
    images      images of one request
    neighbours  largest k of a search
    requests    answered at a time; more get status 503
    seconds     to receive a request
    """

    body: int = 20 * MEGABYTE
    pixels: int = 50_000_000
    images: int = 64
    neighbours: int = 100
    requests: int = 256
    seconds: float = 60.0


class RequestLimitMiddleware:
    """Refuses requests that are too large, too slow, or too many at a time."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it before its body is kept."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.running >= self.limits.requests:
            sentence = f"{self.running} requests are being answered already; try again in a second"
            await problem_response(503, sentence, {"Retry-After": "1"})(scope, receive, send)
            return
        self.running += 1
        body = LimitedBody(receive, self.limits)
        try:
            if declared_length(scope) > self.limits.body:
                await body.drain()
                await problem_response(413, body.sentence)(scope, receive, send)
            else:
                await self.app(scope, body.receive, send)
        except RefusedError as error:
            # Read outside of a route, where no handler sees it.
            await problem_response(error.status_code, error.detail)(scope, receive, send)
        finally:
            self.running -= 1


class LimitedBody:
    """The body of a request, up to a number of bytes and seconds."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self.limits = receive, limits
        self.read, self.ends_at = 0, time.monotonic() + limits.seconds
        self.finished = False

    @property
    def sentence(self) -> str:
        """The error message for a request that is too large."""
        return f"the request is larger than {self.limits.body / MEGABYTE:.4g} MB; send a smaller image"

    async def receive(self) -> Message:
        """The next message; raises an error where a limit is reached."""
        message = await self._next()
        if self.read > self.limits.body:
            await self.drain()
            raise RefusedError(413, self.sentence)
        return message

    async def drain(self) -> None:
        """Read and discard the rest: a client that still sends does not read the response."""
        while not self.finished and self.read < DRAIN_FACTOR * self.limits.body:
            await self._next()

    async def _next(self) -> Message:
        if self.finished:
            return await self._receive()
        try:
            async with asyncio.timeout(self.ends_at - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise RefusedError(
                408, f"the request took more than {self.limits.seconds:g} s to arrive; send a smaller image"
            ) from None
        self.read += len(message.get("body", b""))
        self.finished = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message


def declared_length(scope: Scope) -> int:
    """The length that a client announces; 0 where it does not."""
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0
