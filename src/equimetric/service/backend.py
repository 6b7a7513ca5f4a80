"""`ServedGallery`: a gallery and its verified model, for many callers at once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from equimetric.data.decoding import available_cores
from equimetric.deployment.bulk import LABEL
from equimetric.deployment.embedder import Embedder
from equimetric.deployment.gallery_models import load_gallery_model
from equimetric.deployment.indexing import CONTENT, IMAGE_HASH, gallery_output, item_metadata
from equimetric.deployment.runtimes import RuntimeName
from equimetric.deployment.searching import NamedMatch, answer_queries, query_output
from equimetric.errors import quote
from equimetric.gallery import Gallery, Identity
from equimetric.gallery.certificates import AnyCertificate
from equimetric.gallery.comparison import CertifiedComparison
from equimetric.runs.embedding import images_per_block
from equimetric.service.batching import Batcher
from equimetric.service.limits import Limits
from equimetric.service.metrics import ServiceMetrics
from equimetric.service.problems import RefusedError
from equimetric.service.shared_gallery import SharedGallery
from equimetric.service.uploads import decode_upload

__all__ = ["NewItem", "ServedGallery"]

MAX_BATCH_IMAGES = 32
"""Images per batch of the network: more are no faster, and the first would wait for the last."""

Vector: TypeAlias = NDArray[np.float32]
Result = TypeVar("Result")


class NewItem(NamedTuple):
    """An item to add."""

    id: str
    label: str | None
    content: bytes


class ServedGallery:
    """Answers calls of one event loop; images are decoded on all cores, the rest runs in three threads.

    computing  the network
    reading    searches, in a gallery that is never written to
    writing    additions and removals, in one of its own
    """

    def __init__(self, folder: Path, model: Embedder, limits: Limits, metrics: ServiceMetrics) -> None:
        self.folder, self.model, self.limits = folder, model, limits
        self.reader, self.writer = SharedGallery(folder), SharedGallery(folder)
        self._decoding = ThreadPoolExecutor(available_cores())
        self._computing, self._reading, self._writing = (ThreadPoolExecutor(1) for _ in range(3))
        max_batch = min(MAX_BATCH_IMAGES, images_per_block(model.preprocessing.size**2))
        self._compute = Batcher(
            self._computing, self._compute_batch, max_batch=max_batch, observe=metrics.observe_batch("embed")
        )
        self._search = Batcher(
            self._reading, self._search_batch, max_batch=limits.requests, observe=metrics.observe_batch("search")
        )
        self._add = Batcher(
            self._writing, self._add_batch, max_batch=limits.requests, observe=metrics.observe_batch("add")
        )

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        model: Path | None = None,
        runtime: RuntimeName | None = None,
        limits: Limits,
        metrics: ServiceMetrics,
    ) -> ServedGallery:
        """A gallery with the model that it was made with, which is verified first.

        model  folder of the model, if it has moved
        """
        return cls(folder, load_gallery_model(Gallery.open(folder), model, runtime=runtime), limits, metrics)

    @property
    def certificates(self) -> tuple[AnyCertificate, ...]:
        """The gallery's certificates; the first one decides searches."""
        return self.reader.gallery.certificates

    def warm_up(self) -> None:
        """Run the network and a search once, because the first call is slower."""
        preprocessing = self.model.preprocessing
        grey = np.full((preprocessing.channels, preprocessing.size, preprocessing.size), 128, np.uint8)
        self._search_batch([(outputs[query_output(self.model)], 1) for outputs in self._compute_batch([grey])])

    def close(self) -> None:
        """Finish pending work and stop the threads."""
        for pool in (self._decoding, self._computing, self._reading, self._writing):
            pool.shutdown()

    async def embed(self, content: bytes) -> dict[str, Vector]:
        """The outputs of the model for an uploaded image, by name."""
        loop = asyncio.get_running_loop()
        pixels = await loop.run_in_executor(
            self._decoding, decode_upload, content, self.model.preprocessing, self.limits
        )
        return await self._compute(pixels)

    async def search(self, content: bytes, k: int) -> tuple[str | None, tuple[NamedMatch, ...]]:
        """The name that the certificate accepts, and the k closest items."""
        return await self._search((await self._query(content), k))

    async def identify(self, content: bytes) -> Identity:
        """The identity that an image shows, by the certificate of identification."""
        query = await self._query(content)
        return (await self.read(lambda gallery: gallery.identify(query[None])))[0]

    async def verify(self, content: bytes, item: str) -> tuple[float, bool]:
        """Score of an image and an item, and whether they are accepted as the same."""
        query = await self._query(content)

        def decide(gallery: Gallery) -> tuple[float, bool]:
            require_items(gallery, [item])
            return decide_pair(gallery, query, [item])

        return await self.read(decide)

    async def compare(self, first: bytes, second: bytes) -> tuple[float, bool]:
        """Score of two images, and whether they are accepted as the same."""
        outputs = await asyncio.gather(self.embed(first), self.embed(second))
        query, item = outputs[0][query_output(self.model)], outputs[1][gallery_output(self.model)]
        return await self.read(lambda gallery: decide_pair(gallery, query, item[None]))

    async def add(self, item: NewItem) -> None:
        """Add an image; on return it is on the disk."""
        vector = (await self.embed(item.content))[gallery_output(self.model)]
        await self._add((item, vector))

    async def remove(self, ids: Sequence[str]) -> None:
        """Remove items, all or none."""

        def work() -> None:
            gallery = self.writer.refresh()
            require_items(gallery, ids)
            gallery.remove(list(dict.fromkeys(ids)))

        await asyncio.get_running_loop().run_in_executor(self._writing, work)

    async def read(self, work: Callable[[Gallery], Result]) -> Result:
        """Read the current state of the gallery, including changes of others."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reading, lambda: work(self.reader.refresh()))

    async def image_file(self, item: str) -> Path:
        """Path of an item's image."""

        def find(gallery: Gallery) -> Path | None:
            require_items(gallery, [item])
            return self.reader.image_file(item)

        file = await self.read(find)
        if file is None or not file.is_file():
            raise RefusedError(404, f"the image of {quote(item)} is not on this machine; only its vector is")
        return file

    async def _query(self, content: bytes) -> Vector:
        return (await self.embed(content))[query_output(self.model)]

    def _compute_batch(self, pixels: list[NDArray[np.uint8]]) -> list[dict[str, Vector]]:
        outputs = {name: rows.numpy() for name, rows in self.model.compute(np.stack(pixels)).items()}
        return [{name: rows[index] for name, rows in outputs.items()} for index in range(len(pixels))]

    def _search_batch(self, requests: list[tuple[Vector, int]]) -> list[tuple[str | None, tuple[NamedMatch, ...]]]:
        max_k = max(k for _, k in requests)
        answers = answer_queries(self.reader.refresh(), np.stack([query for query, _ in requests]), k=max_k)
        return [(name, matches[:k]) for (name, matches), (_, k) in zip(answers, requests, strict=True)]

    def _add_batch(self, items: list[tuple[NewItem, Vector]]) -> list[Exception | None]:
        """Add all that can be added in one commit."""
        gallery = self.writer.refresh()
        label = gallery.identity or (LABEL if LABEL in self.writer.columns else None)
        problems = find_problems(gallery, [item for item, _ in items], takes_labels=label is not None)
        valid = [item for item, problem in zip(items, problems, strict=True) if problem is None]
        if valid:
            new_items = [item for item, _ in valid]
            vectors = np.stack([vector for _, vector in valid])
            metadata = describe_items(gallery, new_items, self.writer.columns, label)
            gallery.add(vectors, [item.id for item in new_items], metadata)
        return problems


def decide_pair(gallery: Gallery, query: Vector, item: list[str] | Vector) -> tuple[float, bool]:
    """Score and decision of one query and one item."""
    accepted = gallery.verify(query[None], item)
    comparison = CertifiedComparison.from_certificate(gallery.certificate)
    stored = comparison.convert_items(gallery.vectors(item) if isinstance(item, list) else item)
    score = comparison.scores(comparison.convert_queries(query[None]).vectors, stored)
    return float(score), bool(accepted[0])


def require_items(gallery: Gallery, ids: Sequence[str]) -> None:
    """Raise an error unless all ids are in the gallery."""
    missing = next((item for item in ids if item not in gallery), None)
    if missing is not None:
        raise RefusedError(404, f"there is no item {quote(missing)} in the gallery; give the id of one that is")


def find_problems(gallery: Gallery, items: Sequence[NewItem], *, takes_labels: bool) -> list[Exception | None]:
    """For each item, the error that prevents adding it, or None."""
    problems: list[Exception | None] = []
    batch_ids: set[str] = set()
    for item in items:
        problem = None
        if item.id in batch_ids or item.id in gallery:
            problem = RefusedError(409, f"the id {quote(item.id)} is in use; give another, or remove that item")
        elif item.label is None and gallery.identity is not None:
            problem = RefusedError(409, "items of this gallery are named by a label; send the field 'label'")
        elif item.label is not None and not takes_labels:
            problem = RefusedError(409, "items of this gallery have no labels; leave the field 'label' out")
        batch_ids.add(item.id)
        problems.append(problem)
    return problems


def describe_items(
    gallery: Gallery, items: Sequence[NewItem], columns: Sequence[str], label: str | None
) -> dict[str, Any]:
    """Metadata of items that came over the network: they have no file, so that none can be read by naming it.

    columns  columns of the gallery; none before the first item
    label    the column of labels
    """
    contents = [f"{IMAGE_HASH}:{hashlib.sha256(item.content).hexdigest()}" for item in items]
    labels = [item.label for item in items]
    if not columns and label in (None, LABEL):
        known_labels = [item_label for item_label in labels if item_label is not None]
        return item_metadata(gallery, labels=known_labels or None, files=[None] * len(items), contents=contents)
    values = {CONTENT: contents, label: labels}
    return {name: values.get(name, [None] * len(items)) for name in columns or [str(label)]}
