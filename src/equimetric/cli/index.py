"""`equimetric index`."""

from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.command import DEPLOY, OUT, command
from equimetric.cli.console import show, show_error, show_path
from equimetric.cli.options import PathColumn, Runtime

__all__ = ["index_command"]

LEFT_OUT_SHOWN = 5


@command(
    "index",
    panel=DEPLOY,
    order=4,
    examples="""
    equimetric index model catalogue --out shop.gallery
    equimetric index model list.csv --column file --out shop.gallery
    equimetric index model embeddings.parquet --out shop.gallery
    equimetric index model catalogue --out shop.gallery --store lancedb
    equimetric index model catalogue --out shop.gallery --store qdrant --url http://db:6333
    equimetric index model new-photos --label "Oat milk 1 l" --prefix oat-milk/ --out shop.gallery
    """,
)
def index_command(
    model: Annotated[Path, typer.Argument(help="A folder that `equimetric export` wrote, with a certificate.")],
    images: Annotated[
        Path,
        typer.Argument(
            help="A folder of images, one folder per class; a .csv or .parquet file with paths and labels; or the "
            "embeddings that `equimetric embed` wrote with this model."
        ),
    ],
    out: Annotated[Path, typer.Option(*OUT, help="The gallery: a new folder, or one to add to.")],
    column: PathColumn = "path",
    label: Annotated[str | None, typer.Option("--label", help="The label of all these images.")] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Prefix of every image name, such as shelf2/.")] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace images that are in the gallery with another content.")
    ] = False,
    runtime: Runtime = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            help="Store for a new gallery: embedded (files in its folder), lancedb (larger than memory), or qdrant (a "
            "server).",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="Server of --store qdrant; by default http://localhost:6333.")
    ] = None,
    collection: Annotated[
        str | None, typer.Option("--collection", help="Collection of --store qdrant; by default a new name.")
    ] = None,
) -> None:
    """Put images into a gallery, in which `equimetric search` finds them and `equimetric serve` serves them.

    An image is called by its path below IMAGES, and its label is the first folder of that path, or the column `label`
    of a table: what a search answers with. Images that are in the gallery already are left alone, so the same command
    adds what is new, and resumes after a kill. Images that cannot be read are left out, and listed in the file
    left-out.csv of the gallery.

    The model is verified first. The gallery keeps its certificate, and remembers where the model is.
    """
    from equimetric.deployment.indexing import LEFT_OUT, index_source

    store_options = {"url": url, "collection": collection}
    result = index_source(
        model,
        images,
        out,
        column=column,
        label=label,
        prefix=prefix,
        replace=replace,
        runtime=runtime,  # type: ignore[arg-type]
        store=store,
        **{name: value for name, value in store_options.items() if value is not None},
    )
    for name, reason in result.left_out[:LEFT_OUT_SHOWN]:
        show_error(f"left out: {name} ({reason})")
    if len(result.left_out) > LEFT_OUT_SHOWN:
        show_error(f"left out: {len(result.left_out) - LEFT_OUT_SHOWN} more, all in {out / LEFT_OUT}")
    counts = {"added": result.added, "replaced": result.replaced, "there already": result.unchanged}
    counts_text = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count or kind == "added")
    show(f"{counts_text}; the gallery has {len(result.gallery):,} images")
    show_path("gallery", out)
