"""The API reference: every name of `equimetric`, the typed constructors kind by kind, and the other public modules."""

import json
import re
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

import equimetric
from website.cells import cell
from website.constructor_pages import CONSTRUCTORS, constructor_page
from website.docstrings import list_columns

__all__ = ["reference_pages"]

MODULES = (
    "objectives",
    "components",
    "pairs",
    "geometry",
    "ops",
    "explain",
    "evaluation",
    "calibration",
    "gallery",
    "training",
    "studies",
    "learners",
    "data",
    "batches",
    "backbones",
    "published",
    "protocols",
    "report",
    "search_space",
    "errors",
)

INTERNAL = frozenset(
    re.findall(
        r"\w+",
        "build_objective compose find_recipe parse_method FunctionModule Scheduled format_value record_of round_ties "
        "find_geometry safe_sqrt squared_chord format_score data_fingerprint DelayedStart EpochView HasDelayedStart "
        "FileList FileStore ImageCondition cache_directory fit_view list_first require_pairs shifted_split_of "
        "take_images view_images Groups MinedBatches build_batches BackboneRecord FreezePlan LibraryBackbone Stage "
        "MapBackbone build_backbone build_head build_network build_trunk describe_weight_options find_input_size "
        "find_weight_file init_head_by_pca read_weights require_directions apply_protocol find_protocol figures_of "
        "draw_improvements plain_table print_table record_tables render_figure render_html did_you_mean not_a_tensor "
        "quote unknown_name",
    )
)
"""Names of `__all__` that modules of the package share with each other."""

INTERNAL_MEMBERS = {
    "Objective": "pair_terms weigh select to_loss_input choose value compute compute_rows compute_listed reduce"
    " check_value empty_value extra_repr",
    "Pairs": "default_margin known_empty own_column own_similarity add_query query_weight",
    "Cohort": "require_cosine warn_if_narrow set_statistics class_statistics compute_statistics plain_items"
    " extend_items",
    "Embedder": "require_certificate",
    "Evaluation": "multi_label memberships",
    "Gallery": "prepare find_nearest find_within hit_identities count_identities",
    "StaticProxy": "extra_repr",
    "Batches": "summary shape_options units arrange batch_generator epoch_draw draw_from_classes require_classes",
    "Backbone": "train",
    "EmbeddingNetwork": "train",
}
"""The same of classes."""

IMPORTS = re.compile(
    r"(?:May (?:import|use)|Imports|Nothing is imported|Knows|Builds on|Build on)\b.*?\.(?=\s|$)\s*", re.DOTALL
)
"""Sentences on which module may import which: they are for who changes the package."""

TABLES = {"GEOMETRIES": "geometries", "LOSSES": "losses", "SELECTIONS": "selections"}
"""Public dict of components → the constructors that have the same names."""


def reference_pages() -> dict[str, tuple[str, str]]:
    """An index, the names of the package itself, then constructors and modules."""
    constructors = {
        f"reference/constructors/{kind}.md": (f"Constructors\nem.{kind}", constructor_page(kind))
        for kind in CONSTRUCTORS
    }
    modules = {f"reference/{name}.md": (f"Modules\nequimetric.{name}", module_page(name)) for name in MODULES}
    return {
        "reference/index.md": ("API reference", index_page()),
        "reference/equimetric.md": ("equimetric", package_page()),
        **constructors,
        **modules,
    }


def index_page() -> str:
    """Every name of `equimetric` with its first line, linked to its entry."""
    lines = [
        "# API reference",
        "",
        "What `import equimetric as em` offers. The modules on the left have further public names; nothing else is"
        " promised to stay.",
        "",
        "| name | what it is |",
        "|---|---|",
    ]
    lines += [
        f"| [`em.{name}`](equimetric.md#equimetric.{name}) | {cell(first_line(name))} |"
        for name in sorted(equimetric.__all__, key=str.lower)
    ]
    return "\n".join(lines) + "\n"


def first_line(name: str) -> str:
    """What a name is, in one line."""
    value = getattr(equimetric, name)
    if name in TABLES:
        return f"Dict of all {TABLES[name]} by name."
    return (value.__doc__ or "").strip().split("\n")[0]


def package_page() -> str:
    """An entry for each name of `equimetric`: functions and classes first, then dicts and constructors."""
    names = sorted(equimetric.__all__, key=lambda name: (order_of(getattr(equimetric, name)), name.lower()))
    entries = "\n\n".join(f'<a id="equimetric.{name}"></a>\n\n{entry(name)}' for name in names)
    return f"# equimetric\n\nEvery name that `import equimetric as em` offers.\n\n{entries}\n"


def order_of(value: Any) -> int:
    """Functions, classes, and what is neither."""
    return 2 if isinstance(value, ModuleType) or not callable(value) else int(isinstance(value, type))


def entry(name: str) -> str:
    """A function or class by its docstring; a module or dict by the names in it."""
    value = getattr(equimetric, name)
    if name in TABLES:
        return f"## {name}\n\n{first_line(name)} {names_in(TABLES[name], value)}"
    if isinstance(value, ModuleType):
        return f"## {name}\n\n{first_line(name)} {names_in(name, dir(value))}"
    return directive(value)


def names_in(kind: str, names: Iterable[str]) -> str:
    """Names of constructors, linked to their entries."""
    known = set(dir(getattr(equimetric, kind)))
    page = f"constructors/{kind}.md#equimetric.{kind}"
    return ", ".join(f"[`{name}`]({page}.{name})" if name in known else f"`{name}`" for name in sorted(names))


def module_page(name: str) -> str:
    """The docstring of a module, and every public name of it; those of `equimetric` itself by a link."""
    module = import_module(f"equimetric.{name}")
    public = [one for one in getattr(module, "__all__", ()) if is_documented(getattr(module, one))]
    shared = [one for one in public if getattr(equimetric, one, None) is getattr(module, one)]
    others = [one for one in public if one not in shared and one not in INTERNAL]
    links = ", ".join(f"[`{one}`](equimetric.md#equimetric.{one})" for one in shared)
    also = f"In `equimetric` itself: {links}.\n\n" if links else ""
    entries = "\n\n".join(directive(getattr(module, one)) for one in others)
    return f"# equimetric.{name}\n\n{about(module)}\n\n{also}{entries}\n"


def directive(value: Any) -> str:
    """What mkdocstrings replaces by the docstring of a name, where it is defined."""
    hidden = re.findall(r"\w+", INTERNAL_MEMBERS.get(value.__name__, ""))
    filters = ["!^_", "!^forward$", *(f"!^{name}$" for name in hidden)]
    options = f"\n    options:\n      filters: {json.dumps(filters)}" if hidden else ""
    return f"::: {value.__module__}.{value.__name__}{options}"


def about(module: ModuleType) -> str:
    """The docstring of a module without its files and the laws of its imports."""
    paragraphs = IMPORTS.sub("", (module.__doc__ or "").strip()).split("\n\n")
    kept = "\n\n".join(one.rstrip() for one in paragraphs if one.strip() and not one.startswith("* "))
    return list_columns(kept)


def is_documented(value: object) -> bool:
    """Whether a name is a function or class of this package; tables and constants are shown by their users."""
    return callable(value) and str(getattr(value, "__module__", "")).startswith("equimetric")
