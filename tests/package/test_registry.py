"""The one registry: decorator, discovery, aliases, plug-ins, and declarations read without importing."""

import subprocess
import sys

import pytest

from equimetric.components import LOSSES, REFERENCES, SELECTIONS
from equimetric.errors import EquimetricError
from equimetric.registry import Registry, read_declarations


@pytest.fixture
def room(tmp_path, monkeypatch):
    """A package with one component of its own."""
    package = tmp_path / "a_room"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "first.py").write_text(
        "from a_registry import THINGS\n\n@THINGS.register('one', other_names=('uno',))\ndef one(): ...\n"
    )
    (tmp_path / "a_registry.py").write_text(
        "from equimetric.registry import Registry\nTHINGS = Registry('thing', 'a_room')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] in ("a_room", "a_registry")]:
        del sys.modules[name]


def test_modules_are_imported_at_the_first_look_up(room):
    from a_registry import THINGS

    assert "a_room" not in sys.modules
    assert list(THINGS) == ["one"]
    assert "a_room.first" in sys.modules


def test_a_record_is_found_by_its_other_names(room):
    from a_registry import THINGS

    assert THINGS["uno"] is THINGS["one"] is THINGS.find("uno")


def test_a_misspelt_name_gives_the_nearest(room):
    from a_registry import THINGS

    with pytest.raises(EquimetricError, match="unknown thing 'onee'; did you mean 'one'"):
        THINGS.find("onee")


@pytest.mark.parametrize("name", ["one", "uno"])
def test_a_name_of_another_module_is_taken(room, name):
    from a_registry import THINGS

    THINGS.discover()
    with pytest.raises(EquimetricError, match="already"):
        THINGS.add(name, object, module="elsewhere")


def test_a_broken_module_is_an_error_every_time(room):
    (room / "second.py").write_text("import no_such_module\n")
    from a_registry import THINGS

    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            list(THINGS)
    (room / "second.py").unlink()
    assert list(THINGS) == ["one"]


def test_a_module_may_replace_its_own_record():
    registry: Registry[int] = Registry("number", "equimetric.losses")
    registry.add("a", 1, module="here")
    registry.add("a", 2, module="here")
    assert registry["a"] == 2


def test_an_installed_plug_in_registers_its_components(tmp_path):
    """A package with an entry point in the group `equimetric.plugins` is found like a file of the rooms."""
    package = tmp_path / "my_losses"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mine.py").write_text(
        "from equimetric.components import loss\n\n\n"
        "@loss('mine', title='Mine', family='ranking', paper='Me (2026)')\n"
        "def mine(pairs):\n    '''Sum.'''\n    return pairs.similarity.sum()\n"
    )
    metadata = tmp_path / "my_losses-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-losses\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[equimetric.plugins]\nmy_losses = my_losses\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import equimetric as em; print(em.objective('mine'))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "mine" in shown


def test_declarations_agree_with_the_records():
    declared = {one.name: one for one in read_declarations("equimetric.losses", "loss")}
    assert sorted(declared) == sorted(LOSSES)
    for name, record in LOSSES.items():
        assert declared[name].keywords["title"] == record.title
        assert declared[name].keywords["family"] == record.family
        assert declared[name].keywords["paper"] == record.paper
        assert declared[name].summary == record.summary


@pytest.mark.parametrize(
    ("room", "decorator", "registry"),
    [("losses", "loss", LOSSES), ("selection", "selection", SELECTIONS), ("references", "references", REFERENCES)],
)
def test_declared_options_are_those_of_the_records(room, decorator, registry):
    declared = {one.name: one for one in read_declarations(f"equimetric.{room}", decorator)}
    for name, record in registry.items():
        assert list(declared[name].options) == list(record.options)
        values = (getattr(value, "__name__", str(value)) for value in record.options.values())
        assert [getattr(value, "__name__", str(value)) for value in declared[name].options.values()] == list(values)


PLUGIN = {
    "heavy.py": "import torch\n",
    "light.py": "from equimetric.cli.command import command\n\n\n"
    "@command('hello', panel='Greetings')\ndef hello():\n    '''Say hello.'''\n    print('hello')\n",
}


def test_the_command_of_a_plug_in_is_found_without_importing_the_rest(tmp_path):
    package = tmp_path / "my_tools"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name, source in PLUGIN.items():
        (package / name).write_text(source)
    metadata = tmp_path / "my_tools-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-tools\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[equimetric.plugins]\nmy_tools = my_tools\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from equimetric.cli.command import COMMANDS;"
        "COMMANDS['hello'].function(); print('my_tools.heavy' in sys.modules, 'torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["hello", "False", "False"]
