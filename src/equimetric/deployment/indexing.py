"""Index images: embed them and add them to a gallery a few hundred at a time; those already in it are skipped.

An item's id is the name of its image, its metadata are

    label    class of the image, where classes are known: the identity of the item
    file     path of the image
    content  sha256 of the image file, or of the vector where that came from a file of embeddings
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as copy_with
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from equimetric.deployment.bulk import LABEL, METADATA, PATH, ImageList, describe_model, list_image_files
from equimetric.deployment.embedder import Embedder
from equimetric.deployment.gallery_models import record_model
from equimetric.deployment.image_blocks import embed_readable
from equimetric.deployment.runtimes import RuntimeName
from equimetric.deployment.verify import load_verified
from equimetric.errors import EquimetricError, did_you_mean, quote
from equimetric.file_hashes import hash_files
from equimetric.files import write_atomically
from equimetric.gallery import Gallery
from equimetric.gallery.stores import EMBEDDED, StoreRecord, is_gallery_folder
from equimetric.progress import show_progress

__all__ = [
    "IndexingResult",
    "choose_items",
    "index_embeddings",
    "index_images",
    "index_source",
    "item_metadata",
    "open_index",
]

ROWS_PER_COMMIT = 256
"""Images between two points from which a killed run resumes."""
VECTORS_PER_COMMIT = 2**14
FILE, CONTENT = "file", "content"
IMAGE_HASH, VECTOR_HASH = "sha256", "vector-sha256"
LEFT_OUT = "left-out.csv"
"""File in the gallery's folder that lists the unreadable images of the last run, with the reasons."""


@dataclass(frozen=True)
class IndexingResult:
    """Result of indexing.

    added      images that were not in it
    replaced   images that were in it with another content
    unchanged  images that were in it as they are
    left_out   names of images that cannot be read, with the reasons
    """

    gallery: Gallery
    added: int
    replaced: int
    unchanged: int
    left_out: tuple[tuple[str, str], ...] = ()


def index_source(
    model: str | Path,
    source: str | Path,
    out: str | Path,
    *,
    column: str = PATH,
    label: str | None = None,
    prefix: str = "",
    replace: bool = False,
    runtime: RuntimeName | None = None,
    store: str | None = None,
    **options: Any,
) -> IndexingResult:
    """Add the images of a folder, a table of paths or a file of embeddings to the gallery at `out`.

    model    folder of an exported model, which is verified first
    column   column of a table with the paths
    label    label of all images, in place of their own
    prefix   prefix of every image name
    replace  replace images whose name is in the gallery with another content
    store    store of a new gallery, and its options: see `Gallery.create`
    """
    if is_embeddings_file(source):
        labelled = label is not None or LABEL in pq.read_schema(source).names
        loaded = load_verified(model, runtime=runtime)
        gallery = open_index(out, loaded, model, labelled=labelled, store=store, **options)
        return index_embeddings(gallery, loaded, source, label=label, prefix=prefix, replace=replace)
    images = list_image_files(source, column)
    images = copy_with(images, names=tuple(f"{prefix}{name}" for name in images.names))
    if label is not None:
        images = copy_with(images, labels=(label,) * len(images.names))
    loaded = load_verified(model, runtime=runtime)
    gallery = open_index(out, loaded, model, labelled=images.labels is not None, store=store, **options)
    return index_images(gallery, loaded, images, replace=replace)


def open_index(
    out: str | Path,
    model: Embedder,
    folder: str | Path,
    *,
    labelled: bool,
    store: str | None = None,
    **options: Any,
) -> Gallery:
    """The gallery at `out`, made where there is none, for vectors of the model in `folder`.

    labelled  whether the images of a new gallery have labels, which then name the identities
    store     store of a new gallery, by default embedded; an existing one keeps its own
    """
    if model.certificate is None:
        raise EquimetricError(
            "this model has no certificate, and a gallery decides by one; export the run again without --no-certificate"
        )
    if is_gallery_folder(Path(out)):
        if store is not None and store != StoreRecord.read(Path(out)).store:
            raise EquimetricError(
                f"the gallery {str(out)!r} has the store {StoreRecord.read(Path(out)).store!r}; leave --store out, or "
                "choose another folder"
            )
        gallery = Gallery.open(out)
    else:
        identity = LABEL if labelled else None
        gallery = Gallery.create(out, model.certificate, identity=identity, store=store or EMBEDDED, **options)
    record_model(gallery, model, folder)
    return gallery


def index_images(gallery: Gallery, model: Embedder, images: ImageList, *, replace: bool = False) -> IndexingResult:
    """Add images to a gallery; the same call after a kill adds those that are missing.

    replace  replace images whose name is in the gallery with another content
    """
    contents = [None if digest is None else f"{IMAGE_HASH}:{digest}" for digest in hash_all(images.files)]
    choice = choose_rows(gallery, images.names, contents, replace=replace)
    left_out = []
    with show_progress("Indexing", len(choice.rows)) as advance:
        for chunk in np.split(choice.rows, range(ROWS_PER_COMMIT, len(choice.rows), ROWS_PER_COMMIT)):
            embedded = embed_readable(model, [images.files[row] for row in chunk], advance)
            reasons = zip(chunk, embedded.reasons, strict=True)
            left_out += [(images.names[row], reason) for row, reason in reasons if reason is not None]
            rows = chunk[embedded.readable]
            if len(rows):
                metadata = item_metadata(
                    gallery,
                    labels=None if images.labels is None else [images.labels[row] for row in rows],
                    files=[str(images.files[row].absolute()) for row in rows],
                    contents=[contents[row] for row in rows],
                )
                choice.put(
                    gallery, embedded.outputs[gallery_output(model)], [images.names[row] for row in rows], metadata
                )
    write_left_out(gallery, left_out)
    num_put = len(choice.rows) - len(left_out)
    if not len(gallery):
        raise EquimetricError(f"none of the {len(left_out)} images can be read, such as {left_out[0][0]!r}; check them")
    replaced = len(choice.changed - {name for name, _ in left_out})
    return IndexingResult(gallery, num_put - replaced, replaced, len(images.names) - len(choice.rows), tuple(left_out))


def is_embeddings_file(source: str | Path) -> bool:
    """Whether a file holds embeddings that `equimetric embed` wrote, not paths of images."""
    if Path(source).suffix.lower() != ".parquet" or not Path(source).is_file():
        return False
    try:
        schema = pq.read_schema(source)
    except (OSError, pa.ArrowException):
        return False
    return METADATA.encode() in (schema.metadata or {}) and {PATH, "embedding"} <= set(schema.names)


def index_embeddings(
    gallery: Gallery,
    model: Embedder,
    file: str | Path,
    *,
    label: str | None = None,
    prefix: str = "",
    replace: bool = False,
) -> IndexingResult:
    """Add the rows of a file that `equimetric embed` wrote with the same model; options as of `index_source`."""
    recorded = json.loads(pq.read_schema(file).metadata[METADATA.encode()])
    expected = describe_model(model)
    for name, value in expected.items():
        if recorded.get(name) != value:
            raise EquimetricError(
                f"the embeddings in {str(file)!r} are of the {name} {quote(recorded.get(name))}, and this model has "
                f"{value!r}; embed the images again with this model"
            )
    names: list[str] = []
    contents: list[str | None] = []
    for chunk, vectors, _ in read_embedding_rows(file, model, prefix):
        names += chunk
        contents += [f"{VECTOR_HASH}:{hashlib.sha256(vector).hexdigest()}" for vector in vectors]
    choice = choose_rows(gallery, names, contents, replace=replace)
    selected, start = set(choice.rows.tolist()), 0
    with show_progress("Indexing", len(names)) as advance:
        for chunk, vectors, labels in read_embedding_rows(file, model, prefix):
            rows = [row for row in range(len(chunk)) if start + row in selected]
            chunk_labels = labels if label is None else [label] * len(chunk)
            if rows:
                metadata = item_metadata(
                    gallery,
                    labels=None if chunk_labels is None else [chunk_labels[row] for row in rows],
                    files=[None] * len(rows),
                    contents=[contents[start + row] for row in rows],
                )
                choice.put(gallery, vectors[rows], [chunk[row] for row in rows], metadata)
            start += len(chunk)
            advance(len(chunk))
    write_left_out(gallery, [])
    return IndexingResult(gallery, len(selected) - len(choice.changed), len(choice.changed), len(names) - len(selected))


def item_metadata(
    gallery: Gallery,
    *,
    labels: Sequence[str] | None,
    files: Sequence[str | None],
    contents: Sequence[str | None],
) -> dict[str, Any]:
    """The metadata columns of indexed items; an error where the gallery names items by labels, and there are none."""
    if labels is None and gallery.identity is not None:
        raise EquimetricError(
            f"the gallery {str(gallery.folder)!r} names items by {gallery.identity!r}, and these images have no "
            "labels; put each class into a folder of its own, or give --label"
        )
    if labels is not None and gallery.identity is None:
        raise EquimetricError(
            f"the gallery {str(gallery.folder)!r} was made from images without labels, and these have some; index them "
            "into a gallery of their own"
        )
    columns = {FILE: pa.array(files, pa.string()), CONTENT: pa.array(contents, pa.string())}
    return columns if labels is None else {LABEL: pa.array(labels, pa.string()), **columns}


@dataclass(frozen=True)
class IndexChoice:
    """The rows of a list to add, and the names among them that are in the gallery with another content."""

    rows: NDArray[np.int64]
    changed: frozenset[str]

    def put(self, gallery: Gallery, vectors: NDArray[np.float32], names: list[str], metadata: dict[str, Any]) -> None:
        """Add items, in place of those of the same name; a kill in between leaves them out until the next run."""
        outdated = [name for name in names if name in self.changed]
        if outdated:
            gallery.remove(outdated)
        gallery.add(vectors, names, metadata)


def choose_rows(
    gallery: Gallery, names: Sequence[str], contents: Sequence[str | None], *, replace: bool
) -> IndexChoice:
    """The images that a gallery lacks; a known name with another content raises an error, or is replaced."""
    if len(set(names)) < len(names):
        duplicate = next(name for i, name in enumerate(names) if name in names[:i])
        raise EquimetricError(f"{quote(duplicate)} is listed more than once; list every image once")
    table = gallery.items()
    if len(gallery) and CONTENT not in table.column_names:
        raise EquimetricError(
            f"the gallery {str(gallery.folder)!r} was not made by `equimetric index`; add to it with Gallery.add, or "
            "choose another folder"
        )
    stored = dict(zip(table["id"].to_pylist(), table[CONTENT].to_pylist(), strict=True)) if len(gallery) else {}
    missing = [row for row, name in enumerate(names) if name not in stored]
    changed = [row for row, name in enumerate(names) if name in stored and contents_differ(stored[name], contents[row])]
    if changed and not replace:
        count_text = f" and {len(changed) - 1} more are" if len(changed) > 1 else " is"
        raise EquimetricError(
            f"{quote(names[changed[0]])}{count_text} in the gallery with another content; give --replace to replace, "
            "or --prefix to tell the names apart"
        )
    return IndexChoice(np.array(sorted(missing + changed), np.int64), frozenset(names[row] for row in changed))


def choose_items(gallery: Gallery, patterns: Sequence[str], label: str | None = None) -> list[str]:
    """The ids of the items that patterns name, and of those with a label; an error for what names nothing."""
    table = gallery.items()
    ids = table["id"].to_pylist()
    existing = set(ids)
    chosen: dict[str, None] = {}
    for pattern in patterns:
        matches = [pattern] if pattern in existing else [item for item in ids if fnmatchcase(item, pattern)]
        if not matches:
            raise EquimetricError(f"no image of the gallery is called {quote(pattern)}; nothing was removed")
        chosen.update(dict.fromkeys(matches))
    if label is not None:
        labels = table[LABEL].to_pylist() if LABEL in table.column_names else ids
        matches = [item for item, item_label in zip(ids, labels, strict=True) if item_label == label]
        if not matches:
            raise EquimetricError(
                f"no image of the gallery has this label; {did_you_mean(label, list(dict.fromkeys(labels)))}"
            )
        chosen.update(dict.fromkeys(matches))
    return list(chosen)


def contents_differ(stored: str | None, content: str | None) -> bool:
    """Whether two content hashes differ; hashes of an image and of a vector are not comparable."""
    if stored is None or content is None or stored.partition(":")[0] != content.partition(":")[0]:
        return False
    return stored != content


def hash_all(files: Sequence[Path]) -> list[str | None]:
    """The sha256 of every file, None where it cannot be read."""
    digests: list[str | None] = []
    with show_progress("Reading", len(files)) as advance:
        for start in range(0, len(files), ROWS_PER_COMMIT):
            chunk = files[start : start + ROWS_PER_COMMIT]
            digests += hash_files(chunk)
            advance(len(chunk))
    return digests


def read_embedding_rows(
    file: str | Path, model: Embedder, prefix: str
) -> Iterator[tuple[list[str], NDArray[np.float32], list[str] | None]]:
    """Names, vectors (N, E) and labels of a file of embeddings, some rows at a time."""
    column = gallery_output(model)
    with pq.ParquetFile(file) as opened:
        labelled = LABEL in opened.schema_arrow.names
        for batch in opened.iter_batches(VECTORS_PER_COMMIT, columns=[PATH, column, *([LABEL] if labelled else [])]):
            vectors = batch[column].flatten().to_numpy(zero_copy_only=False).reshape(len(batch), -1)
            labels = batch[LABEL].to_pylist() if labelled else None
            names = [f"{prefix}{name}" for name in batch[PATH].to_pylist()]
            yield names, np.ascontiguousarray(vectors, np.float32), labels


def gallery_output(model: Embedder) -> str:
    """The output of a model that a gallery stores."""
    return "embedding" if model.cohort is None else "gallery"


def write_left_out(gallery: Gallery, left_out: Sequence[tuple[str, str]]) -> None:
    """List the images that could not be read in a file of the gallery's folder; none, no file."""
    file = gallery.folder / LEFT_OUT
    if not left_out:
        file.unlink(missing_ok=True)
        return
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([("path", "reason"), *left_out])
    write_atomically(file, buffer.getvalue())
