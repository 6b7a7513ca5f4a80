"""`equimetric index`."""

from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.command import DEPLOY, OUT, command
from equimetric.cli.console import show, show_error, show_path

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
    column: Annotated[str, typer.Option("--column", help="The column of a table with the paths.")] = "path",
    label: Annotated[str | None, typer.Option("--label", help="The label of all these images.")] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Put before the name of every image, such as shelf2/.")] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace images that are in the gallery with another content.")
    ] = False,
    runtime: Annotated[
        str | None, typer.Option("--runtime", help="torch or onnx; by default torch, for an int8 model onnx.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            help="Of a new gallery: embedded, files in its folder; lancedb, beyond the memory of one machine; qdrant, "
            "a server.",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="With --store qdrant: the server; http://localhost:6333.")
    ] = None,
    collection: Annotated[
        str | None, typer.Option("--collection", help="With --store qdrant: the name of the new collection.")
    ] = None,
) -> None:
    """Put images into a gallery, in which `equimetric search` finds them and `equimetric serve` serves them.

    An image is called by its path below IMAGES, and its label is the first folder of that path, or the column `label`
    of a table: what a search answers with. Images that are in the gallery already are left alone, so the same command
    adds what is new, and goes on after a kill. Images that cannot be read are left out, and listed in the file
    left-out.csv of the gallery.

    The model is verified first. The gallery keeps its certificate, and remembers where the model is.
    """
    from equimetric.deployment.indexing import LEFT_OUT, index_source

    given = {"url": url, "collection": collection}
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
        **{name: value for name, value in given.items() if value is not None},
    )
    for name, reason in result.left_out[:LEFT_OUT_SHOWN]:
        show_error(f"left out: {name} ({reason})")
    if len(result.left_out) > LEFT_OUT_SHOWN:
        show_error(f"left out: {len(result.left_out) - LEFT_OUT_SHOWN} more, all in {out / LEFT_OUT}")
    counts = {"added": result.added, "replaced": result.replaced, "there already": result.unchanged}
    done = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count or what == "added")
    show(f"{done}; the gallery has {len(result.gallery):,} images")
    show_path("gallery", out)
