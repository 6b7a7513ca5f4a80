"""Migrating from other libraries: the rows of `equimetric.objectives.counterparts` as tables."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from equimetric.objectives.counterparts import LIBRARIES, SITUATIONS, Counterpart, counterparts

__all__ = ["LOOP", "MIGRATION_FILES", "VARIABLES", "migration_pages", "shown_code"]

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

TITLES = {
    "logits": "get_logits",
    "options": "Options of metrics",
    "functional": "Functions of metrics",
    "ddp": "Several processes",
}
"""Kind → the heading of its table, where it is not the kind itself."""

LEGEND = """| verdict | means |
|---|---|
| equal | in each of the situations below, in float64, value and gradients agree within 10⁻⁶ of the largest |
| equal except | the same, except in the situations and cases that the row names |
| equal in distribution | drawn at random, with the same probabilities |
| differs | there is a counterpart, but it is defined in another way, and the row says how |
| none | there is no counterpart, and the row says why |

The situations: SITUATIONS. No embedding has unit length in any of them. A loss of two views has no labels and is
compared in the first and the last, a score where there are relevant items and others.
"""

LOOP = {
    "miner(embeddings, labels)": (
        'objective = em.objective("triplet", selection="semihard")',
        "The selection is a part of the objective, which applies it to every batch.",
    ),
    "loss(embeddings, labels)": ("objective(embeddings, labels)", ""),
    "loss(embeddings, labels, indices_tuple=(a, p, n))": (
        "objective(embeddings, labels, triplets=torch.stack([a, p, n], 1))",
        "Triplets of your own take the place of the selection.",
    ),
    "loss(embeddings, labels, ref_emb=gallery, ref_labels=gallery_labels)": (
        "objective(embeddings, labels, gallery, gallery_labels)",
        "",
    ),
    "class MyMiner(BaseMiner)": (
        'objective = em.objective("contrastive", selection=lambda pairs: pairs.keep('
        "positive=pairs.positive, negative=pairs.distance() < 0.8))",
        "A function of `Pairs`.",
    ),
    "Adam(loss.parameters())": ("torch.optim.Adam(objective.parameters())", "Proxies are parameters here, too."),
}
"""What stands in a training loop with pytorch-metric-learning → code here, and a remark."""

VARIABLES = """The code under *here* runs as it stands, with these variables:

```python
import torch
import equimetric as em

classes, dim = 4, 8
labels = torch.arange(classes).repeat_interleave(4)  # with `embeddings`, a batch or a test set
embeddings = torch.randn(16, dim)
superclass = labels // 2
gallery, gallery_labels = torch.randn(16, dim), labels
a, p, n = torch.tensor([0, 4]), torch.tensor([1, 5]), torch.tensor([8, 0])  # rows of two triplets
```
"""


def migration_pages() -> dict[str, tuple[str, str]]:
    """An index, and a page for each library."""
    pages = {f"migrating/{library}.md": (library, library_page(library)) for library in LIBRARIES}
    links = "\n".join(f"* [from {library}]({library}.md), version {VERSIONS[library]}" for library in LIBRARIES)
    index = (
        "# Migrating\n\nThe public names of two libraries, each with its counterpart here or the reason why there is"
        f" none.\n\n{links}\n\n{LEGEND.replace('SITUATIONS', '; '.join(SITUATIONS.values()))}\n{VARIABLES}"
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
        *([loop_section()] if library == "pytorch-metric-learning" else []),
    ]
    for kind in dict.fromkeys(row.kind for row in rows):
        sections += [f"## {TITLES.get(kind, kind.capitalize())}\n", table(row for row in rows if row.kind == kind)]
    return "\n".join(sections)


def loop_section() -> str:
    """How a loop calls a loss and a miner, before the names one by one."""
    lines = ["| theirs | here |", "|---|---|"]
    lines += [
        f"| `{theirs}` | {'<br>'.join([f'`{ours}`', *filter(None, [why])])} |" for theirs, (ours, why) in LOOP.items()
    ]
    return '## In the loop\n\n<div class="migration" markdown>\n\n' + "\n".join(lines) + "\n\n</div>\n"


def shown_code(row: Counterpart) -> str:
    """The counterpart as a user writes it: a seed is there for the comparison of both sides alone."""
    return replace(row, options={name: value for name, value in row.options.items() if name != "seed"}).construction


def table(rows: Iterable[Counterpart]) -> str:
    """Theirs; ours, and why they differ; whether they agree. Its class lets long code wrap."""
    lines = ["| theirs | here, and why | verdict |", "|---|---|---|"]
    for row in rows:
        plain = row.theirs in row.example and not row.example.startswith("lambda")
        call = ".get_logits(embeddings)" if row.kind == "logits" else ""
        theirs = f"`{row.example}{call}`" if plain else ", ".join(f"`{name}`" for name in row.names)
        ours = [*([f"`{shown_code(row)}`"] if row.ours else []), *([row.reason] if row.reason else [])]
        where = "; ".join(SITUATIONS[situation] for situation in row.unlike)
        verdict = MARKS[row.verdict] + (f"{': ' if row.verdict == 'except' else ', for '}{where}" if where else "")
        lines.append(f"| {theirs} | {'<br>'.join(ours)} | {verdict} |")
    return '<div class="migration" markdown>\n\n' + "\n".join(lines) + "\n\n</div>\n"
