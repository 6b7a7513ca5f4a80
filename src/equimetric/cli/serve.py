"""`equimetric serve`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.command import DEPLOY, command
from equimetric.cli.console import show
from equimetric.cli.options import GalleryPath, ModelFolder, Runtime
from equimetric.errors import EquimetricError
from equimetric.escaping import name_text
from equimetric.extras import import_extra

__all__ = ["serve_command"]

KEY = "EQUIMETRIC_API_KEY"


@command(
    "serve",
    panel=DEPLOY,
    order=6,
    examples="""
    equimetric serve shop.gallery
    equimetric serve shop.gallery --port 9000 --key-file keys.txt
    equimetric serve shop.gallery --host 0.0.0.0 --read-only
    equimetric serve shop.gallery --model moved/model
    """,
)
def serve_command(
    gallery: GalleryPath,
    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port; 0 for a free one.")] = 8000,
    model: ModelFolder = None,
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", help=f"A file with API keys, one on each line; or set {KEY}."),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse to add and remove items.")] = False,
    thumbnails: Annotated[
        bool, typer.Option("--thumbnails/--no-thumbnails", help="Whether to show the images of items.")
    ] = True,
    megabytes: Annotated[float, typer.Option("--max-mb", help="Maximum size of a request in megabytes.")] = 20,
    megapixels: Annotated[
        float, typer.Option("--max-megapixels", help="Maximum size of an image in million pixels.")
    ] = 50,
    runtime: Runtime = None,
) -> None:
    """Serve a gallery over HTTP, with a page to try it (needs the extra `serve`).

    The model is verified first. Uploaded images are decoded, embedded and searched for exactly; concurrent requests are
    batched. The page at / takes a photograph and shows its neighbours; /docs lists the endpoints. Without
    a key only programs of this machine may call. Ctrl-C stops after the requests that have begun.
    """
    import_extra("fastapi", "equimetric serve", "fastapi", "serve", "use equimetric search")
    from equimetric.service.access import AccessRules, read_keys
    from equimetric.service.app import build_service
    from equimetric.service.backend import ServedGallery
    from equimetric.service.limits import Limits
    from equimetric.service.metrics import ServiceMetrics
    from equimetric.service.server import bind, run_server

    for name, value in (("--max-mb", megabytes), ("--max-megapixels", megapixels)):
        if not 0 < value < 1e5:
            raise EquimetricError(f"{name} is {value:g}; give a number above 0")
    keys = read_keys(key_file) if key_file is not None else tuple(filter(None, [os.environ.get(KEY)]))
    rules = AccessRules.for_host(host, keys, read_only=read_only)
    limits = Limits(body=round(megabytes * 1e6), pixels=round(megapixels * 1e6))
    metrics = ServiceMetrics()
    with bind(host, port) as listening:
        served = ServedGallery.open(
            gallery,
            model=model,
            runtime=runtime,  # type: ignore[arg-type]
            limits=limits,
            metrics=metrics,
        )
        served.warm_up()
        certificate = served.certificates[0]
        accepted = "distances below" if certificate.cohort is None else "scores above"
        show(
            f"{name_text(str(gallery))}: {len(served.reader.gallery):,} images, {certificate.task}, accepts {accepted} "
            f"{certificate.threshold:.4g}"
        )
        address = f"[{host}]" if ":" in host else host
        show(f"http://{address}:{listening.getsockname()[1]} answers; stop with Ctrl-C")
        run_server(build_service(served, rules, metrics, thumbnails=thumbnails), listening)
    show("stopped")
