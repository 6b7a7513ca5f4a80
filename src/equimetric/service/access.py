"""Access control: holders of an API key, and pages of this site."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from equimetric.errors import EquimetricError, quote
from equimetric.files import require_file
from equimetric.service.problems import problem_response

__all__ = ["AccessMiddleware", "AccessRules", "is_loopback", "read_keys"]

MIN_KEY_LENGTH = 16
PUBLIC_PATHS = frozenset({"/", "/health", "/docs", "/openapi.json"})
"""Paths that need no key; files of the page begin with /assets/."""


@dataclass(frozen=True)
class AccessRules:
    """Access rules of a service.

    keys       accepted API keys; empty: no key is needed
    hosts      accepted Host headers; None: any. Without a key, a page on the internet could otherwise reach this
               machine from a user's browser (DNS rebinding)
    read_only  whether the gallery may not be changed
    """

    keys: tuple[str, ...] = ()
    hosts: frozenset[str] | None = None
    read_only: bool = False

    @classmethod
    def for_host(cls, host: str, keys: Sequence[str], *, read_only: bool) -> "AccessRules":
        """The rules of a service on a host; one that others reach needs a key, or is read-only."""
        if any(len(key) < MIN_KEY_LENGTH for key in keys):
            raise EquimetricError(
                f"an API key has fewer than {MIN_KEY_LENGTH} characters; make one with: "
                'python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
        if is_loopback(host):
            local = frozenset({"localhost", "127.0.0.1", "::1", host.lower()})
            return cls(tuple(keys), None if keys else local, read_only)
        if not keys and not read_only:
            raise EquimetricError(
                f"anybody who reaches {host!r} could change the gallery; give --key-file FILE, or --read-only"
            )
        return cls(tuple(keys), None, read_only)

    def accepts_key(self, candidate: str) -> bool:
        """Whether a caller's key is accepted, compared in constant time."""
        digest = hashlib.sha256(candidate.encode()).digest()
        matches = [hmac.compare_digest(digest, hashlib.sha256(key.encode()).digest()) for key in self.keys]
        return any(matches)


class AccessMiddleware:
    """Refuses callers without a key, and pages of other sites, before anything of their request is read."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self.app, self.rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "http":
            problem = self.problem(scope["path"], Headers(scope=scope))
            if problem is not None:
                status, sentence = problem
                headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
                await problem_response(status, sentence, headers)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def problem(self, path: str, headers: Headers) -> tuple[int, str] | None:
        """Status and sentence for a request that is refused."""
        host = headers.get("host", "")
        if self.rules.hosts is not None and host_name(host) not in self.rules.hosts:
            return 403, f"this service is not called {quote(host)}; call it by localhost, or start it with a key"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, f"pages of {quote(origin)} may not call this service; call it from a program"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and path != "/":
            return 403, "pages of other sites may not call this service; call it from a program"
        if self.rules.keys and path not in PUBLIC_PATHS and not path.startswith("/assets/"):
            scheme, _, key = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not self.rules.accepts_key(key.strip()):
                reason = "a key is needed" if not key else "this key is not accepted"
                return 401, f"{reason}; send the header 'Authorization: Bearer KEY'"
        return None


def read_keys(file: Path) -> tuple[str, ...]:
    """The keys in a file, one on each line."""
    require_file(file, "write one key on each line")
    try:
        keys = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise EquimetricError(f"{quote(str(file))} cannot be read ({error}); write one key on each line") from None
    if not keys:
        raise EquimetricError(f"{quote(str(file))} has no key; write one on each line")
    return keys


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(header: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""
