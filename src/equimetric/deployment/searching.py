"""Images searched for in a gallery: names and distances, or unknown, by the certificate of the gallery."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.deployment.bulk import list_below
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
    """An item that an image found: its id, its identity, and whether the certificate accepts the score."""

    id: str
    name: str
    score: float
    accepted: bool


@dataclass(frozen=True)
class Answer:
    """What a gallery says about an image.

    image    the file
    name     the identity that the certificate accepts; None for a stranger
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


def list_queries(given: Sequence[str | Path]) -> list[Path]:
    """Image files, and those below folders, in the order in which they are given."""
    files: list[Path] = []
    for one in map(Path, given):
        if one.is_dir():
            files += list_below(one).files
            continue
        require_file(one, "give an image, or a folder of images")
        files.append(one)
    return files


def search_images(
    gallery: Gallery, model: Embedder, files: Sequence[Path], *, k: int = NUM_NEIGHBOURS, within: bool = False
) -> Iterator[Answer]:
    """What a gallery says about every image, in their order.

    k       closest items of an answer
    within  all items that the certificate accepts instead
    """
    with show_progress("Searching", len(files)) as advance:
        for start in range(0, len(files), QUERIES):
            some = files[start : start + QUERIES]
            found = embed_readable(model, some, advance)
            vectors = found.outputs.get(query_output(model))
            answers = iter(() if vectors is None else answer_queries(gallery, vectors, k=k, within=within))
            for file, problem in zip(some, found.reasons, strict=True):
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
    found = gallery.within(queries) if within else gallery.search(queries, k)
    identified = gallery.certificate.task == "identification"
    decided = [one.name for one in gallery.identify(queries)] if identified else None
    answers = []
    for number, matches in enumerate(found):
        names = gallery.names([match.id for match in matches])
        named = tuple(_name(match, name) for match, name in zip(matches, names, strict=True))
        closest = named[0].name if named and named[0].accepted else None
        answers.append((closest if decided is None else decided[number], named))
    return answers


def query_output(model: Embedder) -> str:
    """The output of a model that a gallery is searched by."""
    return "embedding" if model.cohort is None else "query"


def _name(match: Match, name: str) -> NamedMatch:
    return NamedMatch(match.id, name, match.score, match.accepted)
