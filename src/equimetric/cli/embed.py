"""`equimetric embed`."""

from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.command import DEPLOY, command
from equimetric.cli.console import show, show_error, show_path

__all__ = ["embed_command"]

DAMAGED_SHOWN = 5


@command(
    "embed",
    panel=DEPLOY,
    order=3,
    examples="""
    equimetric embed model photos --out embeddings.parquet
    equimetric embed model list.csv --column file --out embeddings.parquet
    equimetric embed model photos --out embeddings.parquet --runtime onnx
    """,
)
def embed_command(
    model: Annotated[Path, typer.Argument(help="A folder that `equimetric export` wrote.")],
    images: Annotated[Path, typer.Argument(help="A folder of images, or a .csv or .parquet file with their paths.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The Parquet file to write.")],
    column: Annotated[str, typer.Option("--column", help="The column of a table with the paths.")] = "path",
    runtime: Annotated[
        str | None, typer.Option("--runtime", help="torch or onnx; by default torch, for an int8 model onnx.")
    ] = None,
) -> None:
    """Embed the images of a folder, or those that a table lists, on all cores.

    Writes one row per image: path, label where it is known (the first folder below IMAGES, or the column `label` of
    the table), embedding, and with a cohort the vectors `query` and `gallery`. The same command after a kill goes on
    where it stopped. Images that cannot be read are left out and named.
    """
    from equimetric.deployment.bulk import embed_files, list_image_files
    from equimetric.deployment.load import load_exported

    listed = list_image_files(images, column)
    found = embed_files(load_exported(model, runtime=runtime), listed, out)  # type: ignore[arg-type]
    for reason in found.damaged[:DAMAGED_SHOWN]:
        show_error(f"left out: {reason}")
    if len(found.damaged) > DAMAGED_SHOWN:
        show_error(f"left out: {len(found.damaged) - DAMAGED_SHOWN} more")
    before = f", {found.resumed} of them before" if found.resumed else ""
    show(f"{found.images - len(found.damaged)} of {found.images} images embedded{before}")
    show_path("embeddings", found.file)
