"""Images into a gallery: embedded, added a few hundred at a time, and left alone where they are in it already.

An item's id is the name of its image, its metadata are

    label    class of the image, where classes are known: the identity of the item
    file     where the image was, for those who show it
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
"""In the gallery's folder: the images of the last run that could not be read, with the reasons."""


@dataclass(frozen=True)
class IndexingResult:
    """What a run has done to a gallery.

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
    column   of a table, with the paths
    label    of all images, in place of their own
    prefix   put before the name of every image
    replace  replace images that are in the gallery by name, and differ in content
    store    of a new gallery, and its options: see `Gallery.create`
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
    store     of a new gallery, by default embedded; one that is there has its own
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

    replace  embed images again that are in the gallery by name, and differ in content
    """
    contents = [None if digest is None else f"{IMAGE_HASH}:{digest}" for digest in hash_all(images.files)]
    choice = choose_rows(gallery, images.names, contents, replace=replace)
    left_out = []
    with show_progress("Indexing", len(choice.rows)) as advance:
        for some in np.split(choice.rows, range(ROWS_PER_COMMIT, len(choice.rows), ROWS_PER_COMMIT)):
            found = embed_readable(model, [images.files[row] for row in some], advance)
            reasons = zip(some, found.reasons, strict=True)
            left_out += [(images.names[row], why) for row, why in reasons if why is not None]
            rows = some[found.readable]
            if len(rows):
                metadata = item_metadata(
                    gallery,
                    labels=None if images.labels is None else [images.labels[row] for row in rows],
                    files=[str(images.files[row].absolute()) for row in rows],
                    contents=[contents[row] for row in rows],
                )
                choice.put(gallery, found.outputs[stored_output(model)], [images.names[row] for row in rows], metadata)
    write_left_out(gallery, left_out)
    added = len(choice.rows) - len(left_out)
    if not len(gallery):
        raise EquimetricError(f"none of the {len(left_out)} images can be read, such as {left_out[0][0]!r}; check them")
    replaced = len(choice.changed - {name for name, _ in left_out})
    return IndexingResult(gallery, added - replaced, replaced, len(images.names) - len(choice.rows), tuple(left_out))


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
    described = json.loads(pq.read_schema(file).metadata[METADATA.encode()])
    ours = describe_model(model)
    for name, value in ours.items():
        if described.get(name) != value:
            raise EquimetricError(
                f"the embeddings in {str(file)!r} are of the {name} {quote(described.get(name))}, and this model has "
                f"{value!r}; embed the images again with this model"
            )
    names: list[str] = []
    contents: list[str | None] = []
    for some, vectors, _ in read_embedding_rows(file, model, prefix):
        names += some
        contents += [f"{VECTOR_HASH}:{hashlib.sha256(vector).hexdigest()}" for vector in vectors]
    choice = choose_rows(gallery, names, contents, replace=replace)
    wanted, first = set(choice.rows.tolist()), 0
    with show_progress("Indexing", len(names)) as advance:
        for some, vectors, labels in read_embedding_rows(file, model, prefix):
            rows = [row for row in range(len(some)) if first + row in wanted]
            given = labels if label is None else [label] * len(some)
            if rows:
                metadata = item_metadata(
                    gallery,
                    labels=None if given is None else [given[row] for row in rows],
                    files=[None] * len(rows),
                    contents=[contents[first + row] for row in rows],
                )
                choice.put(gallery, vectors[rows], [some[row] for row in rows], metadata)
            first += len(some)
            advance(len(some))
    write_left_out(gallery, [])
    return IndexingResult(gallery, len(wanted) - len(choice.changed), len(choice.changed), len(names) - len(wanted))


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
    """The rows of a list that are to be added, and the names among them that are in the gallery already."""

    rows: NDArray[np.int64]
    changed: frozenset[str]

    def put(self, gallery: Gallery, vectors: NDArray[np.float32], names: list[str], metadata: dict[str, Any]) -> None:
        """Add items, in place of those of the same name; a kill in between leaves them out until the next run."""
        there = [name for name in names if name in self.changed]
        if there:
            gallery.remove(there)
        gallery.add(vectors, names, metadata)


def choose_rows(
    gallery: Gallery, names: Sequence[str], contents: Sequence[str | None], *, replace: bool
) -> IndexChoice:
    """What of a list of images a gallery lacks; images of one name and two contents raise an error, or are replaced."""
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise EquimetricError(f"{quote(twice)} is listed more than once; list every image once")
    table = gallery.items()
    if len(gallery) and CONTENT not in table.column_names:
        raise EquimetricError(
            f"the gallery {str(gallery.folder)!r} was not made by `equimetric index`; add to it with Gallery.add, or "
            "choose another folder"
        )
    known = dict(zip(table["id"].to_pylist(), table[CONTENT].to_pylist(), strict=True)) if len(gallery) else {}
    missing = [row for row, name in enumerate(names) if name not in known]
    changed = [row for row, name in enumerate(names) if name in known and differ(known[name], contents[row])]
    if changed and not replace:
        more = f" and {len(changed) - 1} more are" if len(changed) > 1 else " is"
        raise EquimetricError(
            f"{quote(names[changed[0]])}{more} in the gallery with another content; give --replace to replace, or "
            "--prefix to tell the names apart"
        )
    return IndexChoice(np.array(sorted(missing + changed), np.int64), frozenset(names[row] for row in changed))


def choose_items(gallery: Gallery, patterns: Sequence[str], label: str | None = None) -> list[str]:
    """The ids of the items that patterns name, and of those with a label; an error for what names nothing."""
    table = gallery.items()
    ids = table["id"].to_pylist()
    there = set(ids)
    chosen: dict[str, None] = {}
    for pattern in patterns:
        found = [pattern] if pattern in there else [one for one in ids if fnmatchcase(one, pattern)]
        if not found:
            raise EquimetricError(f"no image of the gallery is called {quote(pattern)}; nothing was removed")
        chosen.update(dict.fromkeys(found))
    if label is not None:
        labels = table[LABEL].to_pylist() if LABEL in table.column_names else ids
        found = [one for one, its in zip(ids, labels, strict=True) if its == label]
        if not found:
            raise EquimetricError(
                f"no image of the gallery has this label; {did_you_mean(label, list(dict.fromkeys(labels)))}"
            )
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def differ(known: str | None, content: str | None) -> bool:
    """Whether two contents are known to differ: those of an image and of a vector cannot be compared."""
    if known is None or content is None or known.partition(":")[0] != content.partition(":")[0]:
        return False
    return known != content


def hash_all(files: Sequence[Path]) -> list[str | None]:
    """The sha256 of every file, None where it cannot be read."""
    digests: list[str | None] = []
    with show_progress("Reading", len(files)) as advance:
        for start in range(0, len(files), ROWS_PER_COMMIT):
            some = files[start : start + ROWS_PER_COMMIT]
            digests += hash_files(some)
            advance(len(some))
    return digests


def read_embedding_rows(
    file: str | Path, model: Embedder, prefix: str
) -> Iterator[tuple[list[str], NDArray[np.float32], list[str] | None]]:
    """Names, vectors (N, E) and labels of a file of embeddings, some rows at a time."""
    column = stored_output(model)
    with pq.ParquetFile(file) as opened:
        labelled = LABEL in opened.schema_arrow.names
        for batch in opened.iter_batches(VECTORS_PER_COMMIT, columns=[PATH, column, *([LABEL] if labelled else [])]):
            vectors = batch[column].flatten().to_numpy(zero_copy_only=False).reshape(len(batch), -1)
            labels = batch[LABEL].to_pylist() if labelled else None
            names = [f"{prefix}{name}" for name in batch[PATH].to_pylist()]
            yield names, np.ascontiguousarray(vectors, np.float32), labels


def stored_output(model: Embedder) -> str:
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
