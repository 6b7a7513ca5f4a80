"""`equimetric embed`."""

from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.command import DEPLOY, OUT, command
from equimetric.cli.console import show, show_error, show_path
from equimetric.cli.options import PathColumn, Runtime
from equimetric.errors import unknown_name

__all__ = ["embed_command"]

DAMAGED_SHOWN = 5
ENGINES = ("local", "ray")


@command(
    "embed",
    panel=DEPLOY,
    order=3,
    examples="""
    equimetric embed model photos --out embeddings.parquet
    equimetric embed model list.csv --column file --out embeddings.parquet
    equimetric embed model photos --out embeddings.parquet --runtime onnx
    equimetric embed model photos --out embeddings.parquet --engine ray
    """,
)
def embed_command(
    model: Annotated[Path, typer.Argument(help="A folder that `equimetric export` wrote.")],
    images: Annotated[Path, typer.Argument(help="A folder of images, or a .csv or .parquet file with their paths.")],
    out: Annotated[Path, typer.Option(*OUT, help="The Parquet file to write.")],
    column: PathColumn = "path",
    runtime: Runtime = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine", help="Execution engine: local (all cores of this machine), or ray (the cluster of RAY_ADDRESS)."
        ),
    ] = "local",
) -> None:
    """Embed the images of a folder, or those that a table lists, on all cores or on a Ray cluster.

    Writes one row per image: path, label where it is known (the first folder below IMAGES, or the column `label` of
    the table), embedding, and with a cohort the vectors `query` and `gallery`. The same command after a kill resumes
    where it stopped. Images that cannot be read are left out and named.

    With --engine ray, Ray Data hands 256 images at a time to workers of the cluster, each of which has loaded the
    model: all machines must see model and images at the same paths. Without RAY_ADDRESS a cluster is started here.
    """
    from equimetric.deployment.bulk import embed_files, list_image_files
    from equimetric.deployment.load import load_exported

    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    tables = None
    if engine == "ray":
        from equimetric.deployment.ray_embedding import tables_on_ray

        tables = tables_on_ray(model, runtime=runtime)  # type: ignore[arg-type]
    image_list = list_image_files(images, column)
    result = embed_files(load_exported(model, runtime=runtime), image_list, out, tables=tables)  # type: ignore[arg-type]
    for reason in result.damaged[:DAMAGED_SHOWN]:
        show_error(f"left out: {reason}")
    if len(result.damaged) > DAMAGED_SHOWN:
        show_error(f"left out: {len(result.damaged) - DAMAGED_SHOWN} more")
    resumed_text = f", {result.resumed} of them before" if result.resumed else ""
    show(f"{result.images - len(result.damaged)} of {result.images} images embedded{resumed_text}")
    show_path("embeddings", result.file)
