"""Migrating from other libraries: the rows of `equimetric.objectives.counterparts` as tables."""

from collections import Counter
from collections.abc import Iterable

from equimetric.objectives.counterparts import LIBRARIES, Counterpart, counterparts

__all__ = ["MIGRATION_FILES", "migration_pages"]

VERSIONS = {"pytorch-metric-learning": "2.9.0", "open-metric-learning": "4.0.0"}
"""Library → the version whose names have rows."""

MIGRATION_FILES = {
    f"src/equimetric/objectives/{file}": f"migrating/{library}.md" for library, file in LIBRARIES.items()
}
"""File of the repository → page of the site, for links that lead to the one or the other."""

MARKS = {
    "agrees": "equal",
    "except": "equal except",
    "drawn": "equal in distribution",
    "differs": "differs",
    "none": "none",
}
"""Verdict → its word in a table."""

TITLES = {"options": "Options of metrics", "functional": "Functions of metrics", "ddp": "Several processes"}
"""Kind → the heading of its table, where it is not the kind itself."""

LEGEND = """| verdict | means |
|---|---|
| equal | computed on both sides of the same batch in float64: value and gradients agree within 10⁻⁶ |
| equal except | the same, except in the cases that the row names |
| equal in distribution | drawn at random, with the same probabilities |
| differs | there is a counterpart, but it is defined in another way, and the row says how |
| none | there is no counterpart, and the row says why |
"""

VARIABLES = """The code under *here* runs as it stands, with these variables:

```python
import torch
import equimetric as em

classes, dim = 4, 8
labels = torch.arange(classes).repeat_interleave(4)  # with `embeddings`, a batch or a test set
embeddings = torch.randn(16, dim)
superclass = labels // 2
gallery, gallery_labels = torch.randn(16, dim), labels
```
"""


def migration_pages() -> dict[str, tuple[str, str]]:
    """An index, and a page for each library."""
    pages = {f"migrating/{library}.md": (library, library_page(library)) for library in LIBRARIES}
    links = "\n".join(f"* [from {library}]({library}.md), version {VERSIONS[library]}" for library in LIBRARIES)
    index = (
        "# Migrating\n\nThe public names of two libraries, each with its counterpart here or the reason why there is"
        f" none.\n\n{links}\n\n{LEGEND}\n{VARIABLES}"
    )
    return {"migrating/index.md": ("Migrating", index), **pages}


def library_page(library: str) -> str:
    """All rows, kind by kind."""
    rows = counterparts(library)
    verdicts = Counter(MARKS[row.verdict] for row in rows)
    counts = ", ".join(f"{mark} {verdicts[mark]}" for mark in MARKS.values() if verdicts[mark])
    compared = sum(bool(row.compared) for row in rows)
    sections = [
        f"---\nhide: [toc]\n---\n\n# From {library}\n",
        f"Names are those of version {VERSIONS[library]}. {len(rows)} rows: {counts}. {compared} were computed on both"
        " sides. [What the verdicts mean](index.md), and the variables of the code under *here*.\n",
    ]
    for kind in dict.fromkeys(row.kind for row in rows):
        sections += [f"## {TITLES.get(kind, kind.capitalize())}\n", table(row for row in rows if row.kind == kind)]
    return "\n".join(sections)


def table(rows: Iterable[Counterpart]) -> str:
    """Theirs; ours, and why they differ; whether they agree. Its class lets long code wrap."""
    lines = ["| theirs | here, and why | verdict |", "|---|---|---|"]
    for row in rows:
        plain = row.theirs in row.example and not row.example.startswith("lambda")
        theirs = f"`{row.example}`" if plain else ", ".join(f"`{name}`" for name in row.names)
        ours = [*([f"`{row.construction}`"] if row.ours else []), *([row.reason] if row.reason else [])]
        lines.append(f"| {theirs} | {'<br>'.join(ours)} | {MARKS[row.verdict]} |")
    return '<div class="migration" markdown>\n\n' + "\n".join(lines) + "\n\n</div>\n"
