"""What the loaders of public archives share: finding the files, and comparing their number with the literature's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from equimetric.data.file_list import FileList
from equimetric.errors import EquimetricError

__all__ = ["Archive", "read_lines"]


@dataclass(frozen=True)
class Archive:
    """A public data set as its authors pack it.

    `folder` is what the archive unpacks to, `tree` how the inside looks, `published` where it comes from. `counts` has
    classes and images of each part, as the literature states them.
    """

    title: str
    folder: str
    tree: str
    published: str
    counts: Mapping[str, tuple[int, int]]

    def locate(self, root: str | Path, *markers: str) -> Path:
        """`root`, or the archive's folder inside it: the first that holds all the marker files."""
        root = Path(root).expanduser()
        for candidate in (root, root / self.folder):
            if all((candidate / marker).exists() for marker in markers):
                return candidate
        raise self.missing(root, next(marker for marker in markers if not (root / marker).exists()))

    def missing(self, root: Path, what: str) -> EquimetricError:
        """The error for an archive that is not there, with the tree that is expected."""
        found = f"{str(root)!r} has no {what!r}" if root.is_dir() else f"there is no folder {str(root)!r}"
        tree = "\n".join(f"  {line}" for line in self.tree.strip().splitlines())
        return EquimetricError(
            f"{self.title}: {found}; give as root the folder that holds\n{tree}\nIt is published at {self.published}."
        )

    def check(self, listed: FileList, *, accept: bool) -> None:
        """Compare classes and images of each part with the literature, unless any number is accepted."""
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
                "again, or take it as it is with accept_counts=True"
            )


def _count(classes: Sequence[str], parts: Sequence[str], part: str) -> tuple[int, int]:
    members = [name for name, its_part in zip(classes, parts, strict=True) if its_part == part]
    return len(set(members)), len(members)


def read_lines(file: Path, fields: int, *, skip: int = 0) -> list[list[str]]:
    """The lines of a list file, each split into that many fields at white space; `skip` header lines are left out."""
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if number <= skip or not line.strip():
            continue
        row = line.split(maxsplit=fields - 1)
        if len(row) != fields:
            raise EquimetricError(f"line {number} of {str(file)!r} should have {fields} fields: {line!r}")
        rows.append([value.strip() for value in row])
    return rows
