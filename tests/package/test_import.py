"""What an import costs and brings, and what the package promises about itself."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import equimetric as em
from equimetric.report.catalogue_page import catalogue_page

ROOT = Path(__file__).parents[2]
HEAVY = (
    "matplotlib",
    "sklearn",
    "scipy",
    "PIL",
    "fontTools",
    "pydantic",
    "typer",
    "rich",
    "jinja2",
    "optuna",
    "pandas",
)


def test_import_brings_nothing_heavy():
    code = "import torch, sys; before = set(sys.modules); import equimetric; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in loaded if name.partition(".")[0] in HEAVY] == []
    assert len([name for name in loaded if not name.startswith("equimetric")]) < 20


def test_every_public_name_is_there():
    for name in em.__all__:
        assert getattr(em, name) is not None
    assert dir(em) == sorted(em.__all__)


def test_an_unknown_attribute_is_an_attribute_error():
    assert not hasattr(em, "no_such_thing")


def test_the_catalogue_page_is_up_to_date():
    assert (ROOT / "docs" / "methods.md").read_text() == catalogue_page(), "run `make docs`"


def test_rooms_depend_only_on_those_before_them():
    order = [
        "other_names",
        "errors checksums files stopping escaping progress weight_sources families code_version dotted extras",
        "file_hashes",
        "workers ray_clusters",
        "search_space option_values seeding registry intervals module_sources plugins script_definitions own_parts",
        "pairs geometry ops components",
        "losses",
        "selection",
        "references",
        "objectives",
        "published",
        "processes threads configuration",
        "backbones",
        "batches",
        "data",
        "learners",
        "constructors",
        "selections",
        "evaluation",
        "calibration",
        "estimators",
        "gallery",
        "explain",
        "runs",
        "deployment",
        "service",
        "training",
        "protocols",
        "studies",
        "report",
        "fitting",
        "cli",
    ]
    rank = {room: number for number, rooms in enumerate(order) for room in rooms.split()}
    source = ROOT / "src" / "equimetric"
    for file in source.rglob("*.py"):
        room = file.relative_to(source).parts[0].removesuffix(".py")
        if room in ("__init__", "__main__"):
            continue
        for imported in re.findall(r"^\s*(?:from|import) equimetric\.(\w+)", file.read_text(), re.MULTILINE):
            assert rank[imported] <= rank[room], f"{file} imports {imported}, which stands after {room}"


def test_the_repository_has_no_paths_of_a_machine():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in files:
        if name.endswith((".py", ".md", ".toml", ".cff", ".txt")) and name != "tests/package/test_import.py":
            text = (ROOT / name).read_text()
            assert not re.search(r"(?<![\w.])/(?:root|home|work)/", text), name


SEVERAL = {"main"}
"""Names that every program has."""


def public_names(file):
    """Functions and classes that a module defines and exports; losses and selections export what they register."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    defined = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return {one.name for one in defined} & set(ast.literal_eval(node.value))
    return {one.name for one in defined if one.decorator_list}


def test_public_names_are_unique_across_the_package():
    homes = {}
    for file in sorted((ROOT / "src" / "equimetric").rglob("*.py")):
        if file.name != "__init__.py":
            for name in public_names(file) - SEVERAL:
                homes.setdefault(name, []).append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
