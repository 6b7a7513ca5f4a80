"""What the files of losses and selections may say and import: the speed stands behind `ops`."""

import ast
import re
import statistics
from pathlib import Path

import pytest

from equimetric import ops
from equimetric.components import LAWS, loss
from equimetric.errors import EquimetricError

ROOMS = [Path(ops.__file__).parents[1] / room for room in ("losses", "selection")]
FILES = sorted(file for room in ROOMS for file in room.glob("*.py") if file.stem != "__init__")
LOSSES = [file for file in FILES if file.parent.name == "losses"]
MAY_IMPORT = {"components", "errors", "ops", "option_values", "pairs", "search_space", "seeding"}
KERNELS = ("compil", "packed", "packing", "slot", "chunk", "closed form", "closed_form", "with_gradient", "autograd")


def imported(file):
    """Modules of the package that a file imports, as the first name below `equimetric`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "equimetric":
            inside = node.module.split(".")[1:]
            yield from [".".join(inside)] if inside else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from [alias.name for alias in node.names if alias.name.startswith("equimetric")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_losses_and_selections_import_the_core_alone_and_one_another(file):
    allowed = MAY_IMPORT | {f"{file.parent.name}.{other.stem}" for other in FILES if other.parent == file.parent}
    assert set(imported(file)) <= allowed


@pytest.mark.parametrize("file", LOSSES, ids=lambda file: file.stem)
def test_no_loss_mentions_how_it_is_made_fast(file):
    text = file.read_text(encoding="utf-8").lower()
    assert [word for word in KERNELS if word in text] == []


def test_losses_are_short():
    assert statistics.median(len(file.read_text(encoding="utf-8").splitlines()) for file in LOSSES) <= 40


def operations(file):
    """Names of `ops` and `ops.special` that a file uses, as 'mean' and 'special.count'."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name.startswith("ops.") and name.count(".") == 1 + name.startswith("ops.special."):
                yield name.removeprefix("ops.")


def test_every_operation_is_documented_and_used():
    used = {name for file in FILES for name in operations(file)} - {"special"}
    offered = {*ops.__all__, *(f"special.{name}" for name in ops.special.__all__)} - {"special"}
    assert used == offered
    for room in (ops, ops.special):
        for name in room.__all__:
            assert re.search(rf"\b{name}\b", room.__doc__)
            assert getattr(room, name).__doc__


def test_what_most_losses_need_is_little():
    """A reader of losses learns about fifteen names; what one or two methods need stands apart."""
    assert len(ops.__all__) <= 21


def test_an_exemption_names_a_law_that_there_is():
    with pytest.raises(EquimetricError, match="did you mean 'monotone'"):
        loss("mine", title="Mine", family="ranking", paper="", exempt={"monotonic": "because"})(lambda pairs: pairs)
    assert all(LAWS.values())
