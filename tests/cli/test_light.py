"""Help, lists and completion answer without loading anything heavy."""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from equimetric import recipes
from equimetric.backbones import BACKBONES
from equimetric.cli.catalogue import list_backbones, list_datasets, list_methods, list_transforms
from equimetric.cli.command import COMMANDS
from equimetric.data import TRANSFORMS, dataset_descriptions

# Not pydantic: typer itself may load it to parse arguments.
HEAVY = {"torch", "numpy", "scipy", "sklearn", "pandas", "matplotlib", "jinja2", "PIL"}


@pytest.fixture
def light(tmp_path):
    """Run the command line in a process of its own: what it prints; it must not load a heavy package."""

    def run(*arguments, **environment):
        file = tmp_path / "modules.json"
        code = (
            "import json, sys\nfrom equimetric.cli import main\n"
            f"try:\n    main()\nfinally:\n    json.dump(sorted(sys.modules), open({str(file)!r}, 'w'))\n"
        )
        completed = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "COLUMNS": "100", **environment},
        )
        assert completed.returncode == 0, completed.stderr
        loaded = json.loads(file.read_text())
        assert {name.partition(".")[0] for name in loaded} & HEAVY == set()
        assert "equimetric.configuration" not in loaded
        return completed.stdout

    return run


@pytest.fixture
def completions(light):
    """What a shell is offered for the last of these words."""

    def run(*words):
        return light(
            _EQUIMETRIC_COMPLETE="complete_bash",
            COMP_WORDS=" ".join(("equimetric", *words)),
            COMP_CWORD=str(len(words)),
        ).split()

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["methods"],
        ["methods", "--family", "proxy"],
        ["methods", "margin_class"],
        ["datasets"],
        ["backbones"],
        ["published"],
        ["published", "--dataset", "cub", "--metric", "recall@1"],
        ["published", "--paper", "tcm", "--format", "csv"],
        ["published", "--hyperparameters", "--format", "json"],
        ["published", "--improvement"],
    ],
)
def test_look_ups_are_light(light, arguments):
    assert light(*arguments)


def shown_help(light, name):
    """The help of a command without frames, on lines so long that none is broken, blanks as single ones."""
    shown = light(*name.split(), "--help", COLUMNS="20000")
    assert f"Usage: equimetric {name}" in shown
    return " ".join(shown.replace("│", " ").split())


def written_help(command):
    """All that is written of a command: its docstring, its examples, and its options and arguments."""
    yield inspect.getdoc(command.function)
    yield inspect.cleandoc(command.examples)
    hints = get_type_hints(command.function, include_extras=True)
    for parameter in inspect.signature(command.function).parameters.values():
        for declared in (*getattr(hints[parameter.name], "__metadata__", ()), parameter.default):
            if getattr(declared, "help", None):
                yield declared.help


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_is_light_and_shown_as_it_is_written(light, name):
    shown, written = shown_help(light, name), list(written_help(COMMANDS[name]))
    assert len(written) >= 2
    for text in written:
        assert " ".join(text.split()) in shown


def test_the_help_lists_every_command_below_its_panel(light):
    text = light("--help")
    words = ("─ Train and compare", "│ demo ", "─ Evaluate", "│ calibrate ", "─ Look up", "│ methods ")
    places = [text.index(word) for word in words]
    assert places == sorted(places)
    for name in COMMANDS:
        if " " not in name:
            assert f"│ {name} " in text


def test_every_command_has_an_example():
    for name, command in COMMANDS.items():
        assert f"equimetric {name}" in command.examples


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tra"], ["train"]),
        (["datasets", ""], ["check", "shift"]),
        (["methods", "multi_sim"], ["multi_similarity", "multi_similarity_miner"]),
        (["explain", "triplet", "arcf"], ["arcface"]),
        (["methods", "--family", "pro"], ["proxy"]),
        (["datasets", "check", "gl"], ["glyphs"]),
        (["datasets", "check", "cu"], ["cub"]),
        (["published", "--paper", "un"], ["unbiased", "unified-view"]),
    ],
)
def test_completion(completions, words, expected):
    assert completions(*words) == expected


def test_the_completion_script_is_printed(light):
    script = light("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_EQUIMETRIC_COMPLETE=complete_bash" in script


def test_listed_methods_are_those_of_the_catalogue():
    listed = list_methods()
    assert sorted(listed) == sorted(recipes())
    for name, recipe in recipes().items():
        method = listed[name]
        assert (method.family, method.paper) == (recipe.family, recipe.paper)
        assert list(method.options) == list(recipe.defaults)
        for option, value in recipe.defaults.items():
            assert str(method.options[option]) == getattr(value, "__name__", str(value))


def test_an_explained_method_is_that_of_the_catalogue():
    listed = list_methods()
    for name, recipe in recipes().items():
        method = listed[name]
        loss, selection, references = recipe.parts()
        assert (method.title, method.note) == (recipe.title, recipe.note)
        assert method.docstring == inspect.getdoc(loss.definition)
        assert method.geometry == (recipe.geometry or loss.geometries[0])
        assert (method.selection, method.references) == (selection.name, references.name)
        assert method.search == recipe.search, name


def test_listed_data_sets_are_those_that_can_be_loaded():
    assert list(list_datasets()) == [known.name for known in dataset_descriptions()]


def test_options_of_listed_data_sets_are_those_of_their_loaders():
    listed = list_datasets()
    for known in dataset_descriptions():
        found = listed[known.name]
        assert (found.description, found.required) == (known.description, known.required)
        assert list(found.options) == list(known.options)
        assert [str(value) for value in found.options.values()] == [str(value) for value in known.options.values()]


def test_listed_transforms_and_backbones_are_those_of_the_registries():
    assert list_transforms() == {name: one.description for name, one in TRANSFORMS.items()}
    listed = list_backbones()
    assert listed.keys() == BACKBONES.keys()
    for name, record in BACKBONES.items():
        declared = listed[name].keywords
        assert (listed[name].summary, declared["size"], declared["num_features"]) == (
            record.summary,
            record.size,
            record.num_features,
        )
        assert (declared.get("package"), declared.get("public_file")) == (record.package, record.public_file)
