"""The reference of typed constructors, `em.losses.triplet(…)`, from the stubs that editors read."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import equimetric
from equimetric import option_values
from website.docstrings import list_columns
from website.formulas import typeset

__all__ = ["CONSTRUCTORS", "constructor_page"]

CONSTRUCTORS = (
    "losses",
    "selections",
    "references",
    "geometries",
    "batches",
    "learners",
    "backbones",
    "heads",
    "datasets",
)

STUBS = Path(equimetric.__file__).parent / "constructors"

FORMULAS = {"selections", "references", "geometries"}
"""Kinds whose docstrings are typeset here; those of losses are, on the pages of the methods."""

PARTS = (
    "geometry: GeometryName | Geometry | None = None",
    "references: ReferencesName | References | None = None",
    "selection: SelectionName | Callable[[Pairs], Selected] | None = None",
    "normalize: bool | None = None",
    "gather: bool = False",
    "require_both: bool = False",
    "class_weight: Tensor | Sequence[float] | None = None",
    "reduction: str | None = None",
)
"""Options that every objective takes: said once for all losses."""

COMMON = f"""Every one also takes what any objective does, written `...` below:

```python
{chr(10).join(PARTS)}
```

[Objectives](../../objectives.md) explains these. A constructor with two signatures takes either the options of its own
references or references that are made already."""


def constructor_page(kind: str) -> str:
    """One kind: what all have in common, then each constructor in alphabetical order."""
    tree = functions(kind)
    about = (import_module(f"equimetric.constructors.{kind}").__doc__ or "").strip()
    common = f"\n\n{COMMON}" if kind == "losses" else ""
    entries = "\n\n".join(entry(kind, name, nodes) for name, nodes in tree.items())
    return f"# em.{kind}\n\n{about}{common}{numbers(kind)}\n\n{entries}\n"


@cache
def functions(kind: str) -> dict[str, list[ast.FunctionDef]]:
    """Constructor → its signatures in the stub."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.parse(stub(kind)).body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return dict(sorted(found.items()))


@cache
def stub(kind: str) -> str:
    """The source of a stub."""
    return (STUBS / f"{kind}.pyi").read_text(encoding="utf-8")


def numbers(kind: str) -> str:
    """What the names of annotated numbers in this stub mean."""
    used = [name for name in option_values.__all__ if re.search(rf": {name}\b", stub(kind))]
    meanings = [f"`{name}` is {'an integer' if name.endswith('Int') else 'a number'} {limits(name)}" for name in used]
    return f"\n\n{'; '.join(meanings)}." if meanings else ""


def limits(name: str) -> str:
    """The range of an annotated number in words."""
    annotated = getattr(option_values, name)
    return f"{annotated.__metadata__[0]}".replace("of ", "that is ", 1)


def entry(kind: str, name: str, nodes: list[ast.FunctionDef]) -> str:
    """Signatures and docstring of one constructor."""
    signatures = "\n\n".join(signature(kind, node) for node in nodes)
    heading = f"## {name} {{ #equimetric.{kind}.{name} }}"
    return f"{heading}\n\n```python\n{signatures}\n```\n\n{description(kind, name, ast.get_docstring(nodes[0]) or '')}"


def signature(kind: str, node: ast.FunctionDef) -> str:
    """The call as the stub has it; what every loss takes is left out."""
    lines = stub(kind).splitlines()[node.lineno - 1 : node.body[0].lineno - 1]
    if kind == "losses":
        lines = [line for line in lines if line.strip().rstrip(",") not in PARTS]
        lines.insert(-1, "    ...,")
    text = "\n".join(lines).removesuffix(":")
    return f"em.{kind}.{text.removeprefix('def ')}"


def description(kind: str, name: str, docstring: str) -> str:
    """The docstring; a loss has the first sentence, and its method's page the rest."""
    if kind == "losses":
        first = docstring.split("\n\n")[0].replace("\n", " ")
        return f"{first} [Formula, options and numbers](../../methods/{name}.md)"
    if kind in FORMULAS:
        return "\n\n".join(f"<p>{typeset(paragraph)}</p>" for paragraph in docstring.split("\n\n"))
    return list_columns(docstring)
