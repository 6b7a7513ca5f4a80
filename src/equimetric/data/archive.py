"""The common part of loaders of public archives: options, finding the files, checking their numbers."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from typing import Any

from equimetric.data.dataset import Dataset
from equimetric.data.decoding import Decoding
from equimetric.data.file_list import Damaged, FileList
from equimetric.data.file_store import CacheKind
from equimetric.errors import EquimetricError

__all__ = ["Archive", "ArchiveLoader", "read_lines"]


@dataclass(frozen=True)
class Archive:
    """A public data set as its authors pack it.

    `folder` is the folder it unpacks to, `tree` a sketch of its content, `published` its source. `counts` has classes
    and images of each part, as stated in the literature.
    """

    title: str
    folder: str
    tree: str
    published: str
    counts: Mapping[str, tuple[int, int]]

    def locate(self, root: Path, *markers: str) -> Path:
        """`root`, or the archive's folder inside it: the first that holds all the marker files."""
        for candidate in (root, root / self.folder):
            if all((candidate / marker).exists() for marker in markers):
                return candidate
        raise self.missing(root, next(marker for marker in markers if not (root / marker).exists()))

    def missing(self, root: Path, what: str) -> EquimetricError:
        """The error for a missing archive, with the expected tree."""
        found = f"{str(root)!r} has no {what!r}" if root.is_dir() else f"there is no folder {str(root)!r}"
        tree = "\n".join(f"  {line}" for line in self.tree.strip().splitlines())
        return EquimetricError(
            f"{self.title}: {found}; give as root the folder that holds\n{tree}\nIt is published at {self.published}."
        )

    def check(self, listed: FileList, *, accept: bool) -> None:
        """Compare classes and images of each part with the literature, unless `accept`."""
        if accept:
            return
        assert listed.parts is not None
        found = {part: _count(listed.classes, listed.parts, part) for part in self.counts}
        wrong = [part for part, expected in self.counts.items() if found[part] != expected]
        if wrong:
            differences = "; ".join(
                f"{part}: {found[part][0]:,} classes and {found[part][1]:,} images instead of "
                f"{self.counts[part][0]:,} and {self.counts[part][1]:,}"
                for part in wrong
            )
            raise EquimetricError(
                f"{self.title} in {str(listed.root)!r} differs from the literature ({differences}); unpack the archive "
                "again, or accept it with accept_counts=True"
            )

    def loader(self, read: Callable[..., FileList]) -> "ArchiveLoader":
        """Decorator for a function `(root, *, options) -> FileList`: adds the options that all archives share."""
        return ArchiveLoader(self, read)


class ArchiveLoader:
    """Loads an archive: the files that `read(root, …)` lists, with the options that all archives share.

    size, channels  of the images, which are resized and cropped at the centre unless a transform sets another view
    damaged         'refuse' files that cannot be read, or 'skip' them
    cache           'none', 'memory' or 'disk': where decoded images are kept
    decoding        'exact', or 'fast' for large JPEGs
    accept_counts   accept numbers of classes and images other than those in the literature
    """

    def __init__(self, archive: Archive, read: Callable[..., FileList]) -> None:
        self.archive = archive
        self.read = read
        update_wrapper(self, read)
        shared = inspect.signature(self.__call__)
        own = [option for option in inspect.signature(read).parameters.values() if option.kind is option.KEYWORD_ONLY]
        common = [option for option in shared.parameters.values() if option.kind is option.KEYWORD_ONLY]
        self.__signature__ = shared.replace(parameters=[*common, *own])

    def __call__(
        self,
        *,
        root: str | Path,
        size: int = 224,
        channels: int = 3,
        damaged: Damaged = "refuse",
        cache: CacheKind = "none",
        decoding: Decoding = "exact",
        accept_counts: bool = False,
        **own: Any,
    ) -> Dataset:
        """The data set."""
        listed = self.read(Path(root).expanduser(), **own)
        self.archive.check(listed, accept=accept_counts)
        return listed.dataset(size=size, channels=channels, damaged=damaged, cache=cache, decoding=decoding)


def _count(classes: Sequence[str], parts: Sequence[str], part: str) -> tuple[int, int]:
    members = [name for name, its_part in zip(classes, parts, strict=True) if its_part == part]
    return len(set(members)), len(members)


def read_lines(file: Path, fields: int, *, skip: int = 0) -> list[list[str]]:
    """The lines of a list file, each split into `fields` fields at white space, without `skip` header lines."""
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if number <= skip or not line.strip():
            continue
        row = line.split(maxsplit=fields - 1)
        if len(row) != fields:
            raise EquimetricError(f"line {number} of {str(file)!r} should have {fields} fields: {line!r}")
        rows.append([value.strip() for value in row])
    return rows
