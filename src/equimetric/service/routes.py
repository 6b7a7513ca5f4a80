"""One function per endpoint; the docstrings are the reference of the API."""

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, File, Form, Query, Response, UploadFile

from equimetric.service.access import AccessRules
from equimetric.service.backend import NewItem, ServedGallery
from equimetric.service.metrics import ServiceMetrics
from equimetric.service.problems import Problem, RefusedError
from equimetric.service.responses import (
    AddResponse,
    EmbeddedImage,
    Embeddings,
    FoundItem,
    GalleryDescription,
    Health,
    IdentifyResponse,
    RemoveResponse,
    SearchResponse,
    UploadLimits,
    VerifyResponse,
)
from equimetric.service.thumbnails import make_thumbnail

__all__ = ["build_routes"]

PROBLEMS: Mapping[int, str] = {
    400: "The request cannot be read.",
    401: "The key is missing or wrong.",
    403: "A page of another site calls, or the gallery is read-only.",
    404: "There is no such item.",
    408: "The request arrives too slowly.",
    409: "The gallery does not allow it: the id is in use, say, or its certificate is for another task.",
    413: "The request, or the image, is too large.",
    415: "This is no image of a format that is read.",
    422: "A field is missing or wrong, or the image is damaged.",
    503: "Too many requests at a time.",
    507: "The disk is full.",
}
UPLOAD = (400, 401, 403, 408, 413, 415, 422, 503)
READ = (401, 403, 503)
MAX_ID_LENGTH, MAX_IDS = 512, 1000

Image: TypeAlias = Annotated[UploadFile, File(description="An image file: JPEG, PNG, WebP, GIF, BMP, TIFF or PPM.")]
Id: TypeAlias = Annotated[str, Query(min_length=1, max_length=MAX_ID_LENGTH, description="The id of an item.")]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of an endpoint."""
    return {status: {"model": Problem, "description": PROBLEMS[status]} for status in sorted(statuses)}


def build_routes(served: ServedGallery, rules: AccessRules, metrics: ServiceMetrics, *, thumbnails: bool) -> APIRouter:
    """All endpoints of a served gallery."""
    router = APIRouter()
    for add_query in (add_embed, add_search, add_identify, add_verify, add_verify_pair):
        add_query(router, served)
    add_insertion(router, served, rules)
    add_removal(router, served, rules)
    add_description(router, served, rules, thumbnails=thumbnails)
    add_health(router, served, rules)
    add_metrics(router, served, metrics)
    if thumbnails:
        add_thumbnails(router, served)
    return router


def add_embed(router: APIRouter, served: ServedGallery) -> None:
    """POST /embed."""
    limits = served.limits

    @router.post("/embed", tags=["Images"], responses=problems(*UPLOAD))
    async def embed(
        image: Annotated[list[UploadFile], File(min_length=1, max_length=limits.images, description="Image files.")],
    ) -> Embeddings:
        """The vectors of one or several images."""
        contents = [await upload.read() for upload in image]
        outputs = await asyncio.gather(*(served.embed(content) for content in contents))
        vectors = [EmbeddedImage(**{name: row.tolist() for name, row in output.items()}) for output in outputs]
        return Embeddings(model=served.model.model, dimension=served.model.dim, images=vectors)


def add_search(router: APIRouter, served: ServedGallery) -> None:
    """POST /search."""
    limits, decided = served.limits, decisions(served)

    @router.post("/search", tags=["Images"], responses=problems(*UPLOAD))
    async def search(
        image: Image,
        k: Annotated[int, Query(ge=1, le=limits.neighbours, description="How many of the closest items.")] = 5,
    ) -> SearchResponse:
        """The items closest to an image, exactly, and the name that the certificate accepts."""
        name, matches = await served.search(await image.read(), k)
        items = [FoundItem(id=m.id, name=m.name, score=m.score, accepted=m.accepted) for m in matches]
        return SearchResponse(**decided[served.certificates[0].task], name=name, matches=items)


def add_identify(router: APIRouter, served: ServedGallery) -> None:
    """POST /identify."""
    decided = decisions(served)

    @router.post("/identify", tags=["Images"], responses=problems(*UPLOAD, 409))
    async def identify(image: Image) -> IdentifyResponse:
        """Who an image shows, or null for a stranger; needs a certificate of identification."""
        identity = await served.identify(await image.read())
        return IdentifyResponse(**decided["identification"], name=identity.name, id=identity.id, score=identity.score)


def add_verify(router: APIRouter, served: ServedGallery) -> None:
    """POST /verify."""
    decided = decisions(served)

    @router.post("/verify", tags=["Images"], responses=problems(*UPLOAD, 404, 409))
    async def verify(image: Image, id: Id) -> VerifyResponse:
        """Whether an image shows the item it claims to; needs a certificate of verification."""
        score, same = await served.verify(await image.read(), id)
        return VerifyResponse(**decided["verification"], same=same, score=score)


def add_verify_pair(router: APIRouter, served: ServedGallery) -> None:
    """POST /verify/pair."""
    decided = decisions(served)

    @router.post("/verify/pair", tags=["Images"], responses=problems(*UPLOAD, 409))
    async def verify_pair(image: Image, other: Image) -> VerifyResponse:
        """Whether two images show the same; needs a certificate of verification."""
        score, same = await served.compare(await image.read(), await other.read())
        return VerifyResponse(**decided["verification"], same=same, score=score)


def add_insertion(router: APIRouter, served: ServedGallery, rules: AccessRules) -> None:
    """POST /gallery."""

    @router.post("/gallery", status_code=201, tags=["Gallery"], responses=problems(*UPLOAD, 409, 507))
    async def add(
        image: Image,
        id: Annotated[str, Form(min_length=1, max_length=MAX_ID_LENGTH, description="A new id.")],
        label: Annotated[
            str | None, Form(max_length=MAX_ID_LENGTH, description="Its name, where items have one.")
        ] = None,
    ) -> AddResponse:
        """Add an image; after the response it is on the disk. The image itself is not kept."""
        require_writable(rules)
        await served.add(NewItem(id, label, await image.read()))
        return AddResponse(id=id, items=await served.read(len))


def add_removal(router: APIRouter, served: ServedGallery, rules: AccessRules) -> None:
    """DELETE /gallery."""

    @router.delete("/gallery", tags=["Gallery"], responses=problems(*READ, 404, 422, 507))
    async def remove(
        id: Annotated[list[Id], Query(min_length=1, max_length=MAX_IDS, description="The ids of items.")],
    ) -> RemoveResponse:
        """Remove items, all of them or after an error none."""
        require_writable(rules)
        await served.remove(id)
        return RemoveResponse(ids=id, items=await served.read(len))


def add_description(router: APIRouter, served: ServedGallery, rules: AccessRules, *, thumbnails: bool) -> None:
    """GET /gallery."""
    limits, decided = served.limits, decisions(served)

    @router.get("/gallery", tags=["Gallery"], responses=problems(*READ))
    async def describe() -> GalleryDescription:
        """The gallery, its threshold and the limits of requests."""
        certificate = served.certificates[0]
        return GalleryDescription(
            **decided[certificate.task],
            name=served.folder.name,
            items=await served.read(len),
            tasks=[item.task for item in served.certificates],
            measure=certificate.score,
            identity=served.reader.gallery.identity,
            dimension=served.model.dim,
            model=served.model.model,
            writable=not rules.read_only,
            thumbnails=thumbnails,
            limits=UploadLimits(
                bytes=limits.body, pixels=limits.pixels, images=limits.images, neighbours=limits.neighbours
            ),
        )


def add_health(router: APIRouter, served: ServedGallery, rules: AccessRules) -> None:
    """GET /health."""

    @router.get("/health", tags=["Operation"], responses=problems(403, 503))
    async def health() -> Health:
        """Answers while the service does and its gallery can be read; needs no key."""
        await served.read(len)
        return Health(status="ok", version=version("equimetric"), key=bool(rules.keys))


def add_metrics(router: APIRouter, served: ServedGallery, metrics: ServiceMetrics) -> None:
    """GET /metrics."""

    @router.get(
        "/metrics",
        tags=["Operation"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(*READ)},
    )
    async def read_metrics() -> Response:
        """Requests, times, batches and memory, as Prometheus reads them."""
        metrics.items.set(await served.read(len))
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def add_thumbnails(router: APIRouter, served: ServedGallery) -> None:
    """Pictures of items."""
    jpeg = {"content": {"image/jpeg": {"schema": {"type": "string", "contentMediaType": "image/jpeg"}}}}

    @router.get(
        "/thumbnail",
        tags=["Gallery"],
        response_class=Response,
        responses={200: jpeg, **problems(*READ, 404, 413, 422)},
    )
    async def thumbnail(id: Id) -> Response:
        """A small picture of an item, where its image file is on this machine."""
        file = await served.image_file(id)
        picture = await asyncio.to_thread(make_thumbnail, file, served.limits)
        return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=600"})


def decisions(served: ServedGallery) -> dict[str, dict[str, Any]]:
    """Threshold and rule by task."""
    return {
        certificate.task: {"threshold": certificate.threshold, "rule": certificate.rule}
        for certificate in served.certificates
    }


def require_writable(rules: AccessRules) -> None:
    """Raise an error where the gallery may not be changed."""
    if rules.read_only:
        raise RefusedError(403, "this gallery is served read-only; start the service without --read-only")
