"""Search for images in a gallery: names and distances, or unknown, by the gallery's certificate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.deployment.bulk import list_images_recursively
from equimetric.deployment.embedder import Embedder
from equimetric.deployment.image_blocks import embed_readable
from equimetric.files import require_file
from equimetric.gallery import Gallery, Match
from equimetric.progress import show_progress

__all__ = ["Answer", "NamedMatch", "answer_queries", "list_queries", "query_output", "search_images"]

QUERIES = 256
"""Images that are embedded and searched for together."""
NUM_NEIGHBOURS = 5


@dataclass(frozen=True)
class NamedMatch:
    """A matching item: its id, its identity, and whether the certificate accepts the score."""

    id: str
    name: str
    score: float
    accepted: bool


@dataclass(frozen=True)
class Answer:
    """The result of a search for one image.

    image    the file
    name     the identity that the certificate accepts; None for an unknown one
    matches  the closest items, the closest first
    problem  why the image cannot be read
    """

    image: str
    name: str | None = None
    matches: tuple[NamedMatch, ...] = ()
    problem: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """In plain types."""
        return asdict(self)


def list_queries(paths: Sequence[str | Path]) -> list[Path]:
    """Image files, and those below folders, in the order in which they are given."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += list_images_recursively(path).files
            continue
        require_file(path, "give an image, or a folder of images")
        files.append(path)
    return files


def search_images(
    gallery: Gallery, model: Embedder, files: Sequence[Path], *, k: int = NUM_NEIGHBOURS, within: bool = False
) -> Iterator[Answer]:
    """The answer for every image, in order.

    k       closest items of an answer
    within  all items that the certificate accepts instead
    """
    with show_progress("Searching", len(files)) as advance:
        for start in range(0, len(files), QUERIES):
            batch = files[start : start + QUERIES]
            embedded = embed_readable(model, batch, advance)
            vectors = embedded.outputs.get(query_output(model))
            answers = iter(() if vectors is None else answer_queries(gallery, vectors, k=k, within=within))
            for file, problem in zip(batch, embedded.reasons, strict=True):
                if problem is not None:
                    yield Answer(str(file), problem=problem)
                    continue
                name, matches = next(answers)
                yield Answer(str(file), name, matches)


def answer_queries(
    gallery: Gallery, queries: NDArray[np.float32], *, k: int = NUM_NEIGHBOURS, within: bool = False
) -> list[tuple[str | None, tuple[NamedMatch, ...]]]:
    """The accepted identity, or None, and the closest items of every query vector (Q, E).

    With a certificate of identification its rule names; with one of verification the closest item does, if accepted.
    """
    results = gallery.within(queries) if within else gallery.search(queries, k)
    identified = gallery.certificate.task == "identification"
    identified_names = [identity.name for identity in gallery.identify(queries)] if identified else None
    answers = []
    for index, matches in enumerate(results):
        names = gallery.names([match.id for match in matches])
        named_matches = tuple(_name(match, name) for match, name in zip(matches, names, strict=True))
        closest = named_matches[0].name if named_matches and named_matches[0].accepted else None
        answers.append((closest if identified_names is None else identified_names[index], named_matches))
    return answers


def query_output(model: Embedder) -> str:
    """The output of a model that a gallery is searched by."""
    return "embedding" if model.cohort is None else "query"


def _name(match: Match, name: str) -> NamedMatch:
    return NamedMatch(match.id, name, match.score, match.accepted)
