"""Names for lists and completion, read from source: nothing here imports torch."""

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter
from pathlib import Path
from typing import Any

from equimetric.registry import Declaration, read_declarations

__all__ = ["MethodSummary", "complete", "list_backbones", "list_datasets", "list_methods"]


@dataclass(frozen=True)
class MethodSummary:
    """A method of the catalogue in a few words; `options` with their defaults."""

    name: str
    family: str
    summary: str
    paper: str
    options: Mapping[str, Any]


def list_methods() -> dict[str, MethodSummary]:
    """Every loss with the parts it names first, and every recipe, by name."""
    losses, selections, references = (
        {found.name: found for found in read_declarations(f"equimetric.{package}", decorator)}
        for package, decorator in (("losses", "loss"), ("selection", "selection"), ("references", "references"))
    )
    methods = {}
    for recipe in (*({"name": name, "loss": name} for name in losses), *recipe_rows()):
        loss = losses[recipe["loss"]]
        selection = selections[recipe.get("selection") or "all"]
        parts = (references[recipe.get("references") or default_references(loss)], selection, loss)
        papers = dict.fromkeys(paper for part in (loss, selection) if (paper := part.keywords.get("paper")))
        options = {name: default for part in parts for name, default in part.options.items()}
        options |= recipe.get("options") or {}
        methods[recipe["name"]] = MethodSummary(
            name=recipe["name"],
            family=loss.keywords.get("family", ""),
            summary=recipe.get("note") or loss.summary,
            paper=recipe.get("source") or "; ".join(papers),
            options={name: value for name, value in options.items() if value is not Parameter.empty},
        )
    return methods


def default_references(loss: Declaration) -> str:
    """The references that a loss names first."""
    kinds = loss.keywords.get("references", "batch")
    return str(kinds if isinstance(kinds, str) else kinds[0])


def recipe_rows() -> list[dict[str, Any]]:
    """The rows of the catalogue as plain data.

    At the merge, the first branch alone: `from equimetric.objectives.recipes import ROWS`.
    """
    spec = find_spec("equimetric.objectives")
    assert spec is not None
    assert spec.origin is not None
    if spec.submodule_search_locations:
        return [vars(row) for row in import_module("equimetric.objectives.recipes").ROWS]
    tree = ast.parse(Path(spec.origin).with_name("catalogue.py").read_text(encoding="utf-8"))
    assigned = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    rows = assigned["ROWS"]
    assert isinstance(rows, ast.Tuple)
    return [
        dict(zip(("name", "title", "loss"), map(ast.literal_eval, row.args), strict=True))
        | {key.arg: ast.literal_eval(key.value) for key in row.keywords if key.arg and key.arg != "ranges"}
        for row in rows.elts
        if isinstance(row, ast.Call)
    ]


def list_datasets() -> dict[str, str]:
    """Name → description of every data set."""
    declared = read_declarations("equimetric.data", "dataset") + read_declarations("equimetric.data", "builtin_dataset")
    return {found.name: found.summary for found in sorted(declared, key=lambda found: found.name)}


def list_backbones() -> dict[str, str]:
    """Name → description of every backbone defined here."""
    return {found.name: found.summary for found in read_declarations("equimetric.backbones", "backbone")}


def complete(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Shell completion of an argument: those names that begin with what is typed."""

    def matching(incomplete: str) -> list[str]:
        return sorted(name for name in names() if name.startswith(incomplete))

    return matching
