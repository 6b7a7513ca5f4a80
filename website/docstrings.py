"""Docstrings as mkdocstrings shows them: aligned columns of names and meanings become lists."""

import re
from typing import Any

import griffe

__all__ = ["AlignedLists", "list_columns"]

COLUMN = re.compile(r"^ {0,4}([\w*`][\w, *`.…]*?)  +(\S.*)$")
LONG_NAME = re.compile(r"^(\w+(?:, \w+)*)\n {5,}(?=\S)", re.MULTILINE)
"""Names that leave no place for their meaning, which stands in the next line."""


class AlignedLists(griffe.Extension):
    """Rewrites the docstring of every object that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """After an object has been read from its file."""
        if obj.docstring:
            obj.docstring.value = list_columns(obj.docstring.value)


def list_columns(text: str) -> str:
    """Two lines or more of `name   meaning`, with what continues them, as a Markdown list."""
    return "\n\n".join(map(list_column, text.split("\n\n")))


def list_column(paragraph: str) -> str:
    """One paragraph, as a list if it is a column."""
    joined = LONG_NAME.sub(r"\1  ", paragraph)
    return as_list(joined) if is_column(joined.splitlines()) else paragraph


def is_column(lines: list[str]) -> bool:
    """Whether at least two lines are names with meanings, and every other continues one of them."""
    matches = [COLUMN.match(line) for line in lines]
    continued = all(match or line.startswith("   ") for match, line in zip(matches, lines, strict=True))
    return sum(map(bool, matches)) > 1 and matches[0] is not None and continued


def as_list(paragraph: str) -> str:
    """A bullet for each name."""
    bullets: list[str] = []
    for line in paragraph.splitlines():
        match = COLUMN.match(line)
        if match:
            bullets.append(f"* `{match[1].strip('`')}`: {match[2]}")
        else:
            bullets[-1] += f" {line.strip()}"
    return "\n".join(bullets)
