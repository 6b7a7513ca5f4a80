"""Bulk embedding on a Ray cluster: Ray Data hands parts of the list to workers that have loaded the model.

Every machine of the cluster must have the model and the images at the same paths, such as on a shared disk; tables of
embeddings come back to the process that writes the result.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from equimetric.deployment.bulk import ImageList, PartTables, part_table
from equimetric.deployment.embedder import Embedder
from equimetric.deployment.load import load_exported
from equimetric.deployment.runtimes import RuntimeName
from equimetric.errors import EquimetricError
from equimetric.extras import import_extra
from equimetric.ray_clusters import connect_ray

__all__ = ["tables_on_ray"]


def tables_on_ray(folder: str | Path, *, runtime: RuntimeName | None = None, jobs: int | None = None) -> PartTables:
    """The `tables` argument of `embed_files` for Ray Data; `jobs` are the CPUs of a cluster that is started here."""
    model_folder = Path(folder).resolve()

    def compute(
        model: Embedder,  # noqa: ARG001  (workers load their own)
        parts: Sequence[ImageList],
        advance: Callable[[int], None],
    ) -> Iterator[tuple[int, Any]]:
        with connect_ray(jobs) as ray:
            data = import_extra("ray.data", "the engine 'ray'", "ray", "ray", "choose the engine 'local'")
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            data.DataContext.get_current().enable_progress_bars = False
            workers = max(1, min(len(parts), int(ray.cluster_resources().get("CPU", 1))))
            rows = [{"number": i, "images": pack_images(part)} for i, part in enumerate(parts)]
            embedded = data.from_items(rows, override_num_blocks=len(rows)).map_batches(
                PartWorker,
                fn_constructor_args=(str(model_folder), runtime),
                batch_size=1,
                num_cpus=1,
                compute=data.ActorPoolStrategy(size=workers),
            )
            try:
                for row in embedded.iter_rows():
                    advance(len(parts[row["number"]].files))
                    yield int(row["number"]), unpack_table(row["table"])
            except ray.exceptions.RayError as error:
                reason = str(error).strip().splitlines()[-1]
                raise EquimetricError(
                    f"a worker of the Ray cluster failed ({reason}); every machine needs the model and the images at "
                    "the same paths"
                ) from None

    return compute


class PartWorker:
    """Loads the model once, and embeds one part after another."""

    def __init__(self, folder: str, runtime: RuntimeName | None) -> None:
        self.model = load_exported(folder, runtime=runtime)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The tables of some parts, as bytes."""
        tables = [part_table(self.model, unpack_images(images), lambda _: None) for images in batch["images"]]
        return {"number": batch["number"], "table": [pack_table(table) for table in tables]}


def pack_images(images: ImageList) -> str:
    """A list of images as text."""
    return json.dumps([images.names, [str(file.resolve()) for file in images.files], images.labels])


def unpack_images(text: str) -> ImageList:
    """The inverse of `pack_images`."""
    names, files, labels = json.loads(text)
    return ImageList(tuple(names), tuple(map(Path, files)), None if labels is None else tuple(labels))


def pack_table(table: Any) -> bytes:
    """An Arrow table with its metadata as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack_table(packed: bytes) -> Any:
    """The inverse of `pack_table`."""
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_all()
