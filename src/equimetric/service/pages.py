"""The demo page of a gallery, and the reference of the API: files of this package, nothing from the network."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, StrictUndefined
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from equimetric.service.problems import RefusedError

__all__ = ["SecurityHeadersMiddleware", "add_pages"]

ASSETS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class SecurityHeadersMiddleware:
    """Adds security headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def add_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, add_headers)


def add_pages(app: FastAPI) -> None:
    """The page at /, its files below /assets, the reference at /docs."""
    router = APIRouter(include_in_schema=False)

    @router.get("/", response_class=HTMLResponse)
    async def page() -> str:
        return read_asset("index.html")

    @router.get("/assets/{name}")
    async def asset(name: str) -> Response:
        if name not in ASSETS:
            raise RefusedError(404, "the page has no such file")
        return Response(read_asset(name), media_type=ASSETS[name])

    @router.get("/docs", response_class=HTMLResponse)
    async def reference() -> str:
        return render_reference(app.openapi())

    app.include_router(router)


@cache
def read_asset(name: str) -> str:
    """A text file of the page."""
    return (files("equimetric.service") / "assets" / name).read_text(encoding="utf-8")


def render_reference(document: Mapping[str, Any]) -> str:
    """An OpenAPI document as a page to read."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["words"] = describe_schema
    return environment.from_string(read_asset("reference.html.jinja")).render(
        document=document, schemas=document["components"]["schemas"], resolve=lambda schema: resolve(document, schema)
    )


def resolve(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow the reference of a schema, if it is one."""
    name = schema.get("$ref", "").rpartition("/")[2]
    resolved: Mapping[str, Any] = document["components"]["schemas"][name] if name else schema
    return resolved


def describe_schema(schema: Mapping[str, Any]) -> str:
    """The type of a value in words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(describe_schema(option) for option in schema["anyOf"])
    if "contentMediaType" in schema:
        return "file"
    if schema.get("type") == "array":
        return f"{describe_schema(schema['items'])}, one or several"
    bounds = {"minimum": "at least", "maximum": "at most"}
    limits = [f"{bounds[key]} {schema[key]}" for key in bounds if key in schema]
    return " ".join([str(schema.get("type", "any")), *limits])
