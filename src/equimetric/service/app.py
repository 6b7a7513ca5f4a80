"""The service as one application of FastAPI."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from starlette.middleware import Middleware

from equimetric.service.access import AccessMiddleware, AccessRules
from equimetric.service.backend import ServedGallery
from equimetric.service.limits import RequestLimitMiddleware
from equimetric.service.metrics import MetricsMiddleware, ServiceMetrics
from equimetric.service.pages import SecurityHeadersMiddleware, add_pages
from equimetric.service.problems import handle_problems
from equimetric.service.routes import build_routes

__all__ = ["build_service"]


def build_service(
    served: ServedGallery, rules: AccessRules, metrics: ServiceMetrics, *, thumbnails: bool = True
) -> FastAPI:
    """The application that answers for a gallery; it closes the gallery when it ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        served.close()

    app = FastAPI(
        title=f"Equimetric: {served.folder.name}",
        description="Search of images by a certified threshold. Requests are forms with image files; refused ones are "
        "answered with one sentence that says why.",
        version=version("equimetric"),
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        # The first is the outermost: all requests are counted, and none is read before its caller may call.
        middleware=[
            Middleware(MetricsMiddleware, metrics=metrics),
            Middleware(SecurityHeadersMiddleware),
            Middleware(AccessMiddleware, rules=rules),
            Middleware(RequestLimitMiddleware, limits=served.limits),
        ],
    )
    handle_problems(app)
    # Only for the document: `AccessMiddleware` has looked at the key before.
    documented = [Depends(HTTPBearer(auto_error=False))] if rules.keys else []
    app.include_router(build_routes(served, rules, metrics, thumbnails=thumbnails), dependencies=documented)
    add_pages(app)
    return app
