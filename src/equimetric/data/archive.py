"""The common part of loaders of public archives: options, finding the files, checking their numbers."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from typing import Any

from equimetric.data.dataset import Dataset
from equimetric.data.decoding import Decoding
from equimetric.data.exclusions import Damaged
from equimetric.data.file_list import FileList, first_outside
from equimetric.data.file_store import CacheKind
from equimetric.data.registry import InputSize
from equimetric.errors import EquimetricError, quote
from equimetric.files import IS_FOLDER, NOT_THERE, unreadable_reason

__all__ = ["Archive", "ArchiveLoader", "archive_root", "read_lines", "read_number", "read_text"]

MAX_DIGITS = 18
"""Digits that always fit into a 64-bit integer."""


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
        raise self.missing_error(root, next(marker for marker in markers if not (root / marker).exists()))

    def missing_error(self, root: Path, marker: str) -> EquimetricError:
        """The error for a missing archive, with the expected tree."""
        problem = f"{str(root)!r} has no {marker!r}" if root.is_dir() else f"there is no folder {str(root)!r}"
        tree = "\n".join(f"  {line}" for line in self.tree.strip().splitlines())
        return EquimetricError(
            f"{self.title}: {problem}; give as root the folder that holds\n{tree}\nIt is published at {self.published}."
        )

    def check(self, files: FileList, *, accept: bool) -> None:
        """Compare classes and images of each part with the literature, unless `accept`."""
        if accept:
            return
        assert files.parts is not None
        counts = {part: _count(files.classes, files.parts, part) for part in self.counts}
        wrong = [part for part, expected in self.counts.items() if counts[part] != expected]
        if wrong:
            differences = "; ".join(
                f"{part}: {counts[part][0]:,} classes and {counts[part][1]:,} images instead of "
                f"{self.counts[part][0]:,} and {self.counts[part][1]:,}"
                for part in wrong
            )
            raise EquimetricError(
                f"{self.title} in {str(files.root)!r} differs from the literature ({differences}); unpack the archive "
                "again, or accept it with accept_counts=True"
            )

    def loader(self, read: Callable[..., FileList]) -> "ArchiveLoader":
        """Decorator for a function `(root, *, options) -> FileList`: adds the options that all archives share."""
        return ArchiveLoader(self, read)


class ArchiveLoader:
    """Loads an archive: the files that `read(root, …)` lists, with the options that all archives share.

    size, channels  of the images, which are resized and cropped at the centre unless a transform sets another view
    damaged         'refuse' files that cannot be read or are missing, or 'skip' them
    min_images      classes with fewer images are left out
    cache           'none', 'memory' or 'disk': where decoded images are kept
    decoding        'exact', or 'fast' for large JPEGs
    accept_counts   accept numbers of classes and images other than those in the literature
    """

    def __init__(self, archive: Archive, read: Callable[..., FileList]) -> None:
        self.archive = archive
        self.read = read
        update_wrapper(self, read)
        call = inspect.signature(self.__call__)
        read_options = [
            option for option in inspect.signature(read).parameters.values() if option.kind is option.KEYWORD_ONLY
        ]
        common_options = [option for option in call.parameters.values() if option.kind is option.KEYWORD_ONLY]
        self.__signature__ = call.replace(parameters=[*common_options, *read_options])

    def __call__(
        self,
        *,
        root: str | Path,
        size: InputSize = 224,
        channels: int = 3,
        damaged: Damaged = "refuse",
        min_images: int = 1,
        cache: CacheKind = "none",
        decoding: Decoding = "exact",
        accept_counts: bool = False,
        **options: Any,
    ) -> Dataset:
        """The data set."""
        file_list = self.read(archive_root(root), **options)
        self.archive.check(file_list, accept=accept_counts)
        outside = first_outside(file_list.root, file_list.files)
        if outside is not None:
            raise EquimetricError(
                f"{self.archive.title} lists a file outside of its folder: {quote(str(file_list.files[outside]))}; "
                "unpack the archive again"
            )
        return file_list.dataset(
            size=size, channels=channels, damaged=damaged, min_images=min_images, cache=cache, decoding=decoding
        )


def archive_root(root: str | Path) -> Path:
    """The path of an archive, which may be missing so far, but not a pipe or a name that no folder can have."""
    path = Path(root).expanduser()
    reason = unreadable_reason(path)
    if reason not in ("", IS_FOLDER, NOT_THERE):
        raise EquimetricError(f"{quote(str(path))} {reason}; give as root the folder to which the archive was unpacked")
    return path


def _count(classes: Sequence[str], parts: Sequence[str], part: str) -> tuple[int, int]:
    members = [name for name, class_part in zip(classes, parts, strict=True) if class_part == part]
    return len(set(members)), len(members)


def read_lines(file: Path, fields: int, *, skip: int = 0) -> list[list[str]]:
    """The lines of a list file, each split into `fields` fields at white space, without `skip` header lines."""
    rows = []
    for line_number, line in enumerate(read_text(file).splitlines(), start=1):
        if line_number <= skip or not line.strip():
            continue
        row = line.split(maxsplit=fields - 1)
        if len(row) != fields:
            raise EquimetricError(f"line {line_number} of {str(file)!r} should have {fields} fields: {quote(line)}")
        rows.append([value.strip() for value in row])
    return rows


def read_text(file: Path) -> str:
    """The text of a list file."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EquimetricError(f"{str(file)!r} cannot be read as text ({error}); unpack the archive again") from None


def read_number(text: str, file: Path) -> int:
    """A whole number of a list file."""
    if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
        raise EquimetricError(f"{str(file)!r} has {quote(text)} in place of a whole number; unpack the archive again")
    return int(text)
