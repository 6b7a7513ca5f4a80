"""Plug-ins of a configuration: loaded, part of the key by content, never run from the folder of a run."""

import json

import pytest
import torch
from own_components import CONDITIONS, GAP, HELPERS, forget_plugins, forgotten_plugins, write_plugin

import equimetric as em
from equimetric.runs.configuration import RunConfig
from equimetric.runs.folder import RunFolder
from equimetric.runs.key import RunKey
from equimetric.runs.plugin_config import load_with_plugins
from equimetric.studies.reproduction import reproduce_run

RUN = {**CONDITIONS, "method": "gap"}


@pytest.fixture(autouse=True)
def forgotten():
    with forgotten_plugins():
        yield


@pytest.fixture
def file(tmp_path):
    return write_plugin(tmp_path / "plugins")


def key_of(file, **changes):
    config = load_with_plugins({**RUN, "plugins": [str(file)], **changes}, RunConfig)
    return RunKey.from_config(config, "data").content


def write_config(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


def test_a_plug_in_is_found_beside_its_configuration(file, tmp_path):
    config = load_with_plugins(
        write_config(tmp_path / "runs", "plugins = ['../plugins/my_losses.py']\nmethod = 'gap'"), RunConfig
    )
    assert config.plugins == [str(file)]
    assert em.objective("gap", margin=0.3).loss.options == {"margin": 0.3}


def test_a_method_may_name_its_file(file):
    config = load_with_plugins(write_config(file.parent, "method = 'contrastive + 0.5*my_losses:plain'"), RunConfig)
    assert config.plugins == [str(file)]
    objective = em.objective(config.method, **{"my_losses:plain.margin": 0.3})
    weight, plain = objective.parts()[1]
    assert (weight, plain.loss.options) == (0.5, {"margin": 0.3})


def test_each_objective_of_a_class_has_parameters_of_its_own(file):
    em.load_plugins(file)
    one, other = em.objective("my_losses:Boundary", start=0.1), em.objective("my_losses:Boundary")
    assert (one.loss.boundary.item(), other.loss.boundary.item()) == (pytest.approx(0.1), 0.5)
    assert em.objective("my_losses:gap").name == "gap", "a registered loss keeps its name"


def test_classes_and_modules_without_a_decorator_are_losses(file):
    file.write_text(GAP.replace("*, start", "start") + "\n\nmade = Boundary(start=0.3)\n")
    em.load_plugins(file)
    assert em.objective("my_losses:Boundary", start=0.1).loss.boundary.item() == pytest.approx(0.1)
    one, other = em.objective("my_losses:made"), em.objective("my_losses:made")
    assert one.loss.boundary is not other.loss.boundary
    assert one.loss.boundary.item() == pytest.approx(0.3)
    file.write_text(GAP.replace("*, start: float = 0.5", "start"))
    em.load_plugins(file)
    with pytest.raises(em.EquimetricError, match="cannot be made without options: it needs start"):
        em.objective("my_losses:Boundary")


def test_the_key_follows_the_content_and_not_the_path(file, tmp_path):
    key = key_of(file)
    forget_plugins()
    moved = write_plugin(tmp_path / "elsewhere", "other_name")
    assert key_of(moved) == key, "moved and renamed"
    forget_plugins()
    file.write_text(GAP.replace("+ margin)", "+ 2 * margin)"))
    assert key_of(file) != key, "edited"
    forget_plugins()
    write_plugin(file.parent)
    assert key_of(file) == key, "restored"


def test_a_module_beside_the_plug_in_counts(file):
    key = key_of(file)
    (file.parent / "my_helpers.py").write_text(HELPERS.replace("relu", "exp"))
    assert key_of(file) != key
    assert em.objective("gap").loss.function.__globals__["soften"](torch.zeros(())) == 1, "and is imported anew"


def test_a_run_that_names_nothing_of_a_plug_in_keeps_its_key(file):
    plain = RunKey.from_config(load_with_plugins({**RUN, "method": "contrastive"}, RunConfig), "data").content
    assert key_of(file, method="contrastive") == plain
    file.write_text(GAP.replace("0.2", "0.4"))
    assert key_of(file, method="contrastive") == plain
    named = {key_of(file, method=f"my_losses:{name}") for name in ("plain", "Boundary")}
    assert len({*named, plain}) == 3


def test_a_plug_in_that_defines_nothing_concerns_every_run(tmp_path):
    file = write_plugin(tmp_path, "my_patch", "import math\n\nmath.my_constant = 1\n")
    key = key_of(file, method="contrastive")
    file.write_text("import math\n\nmath.my_constant = 2\n")
    assert key_of(file, method="contrastive") != key


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "absent.py",
            None,
            "there is no plug-in 'absent.py'; give a file such as my_losses.py beside the configuration",
        ),
        ("no_such_module", None, "the plug-in 'no_such_module' cannot be imported: ModuleNotFoundError"),
        ("my-loss.py", "", "the plug-in 'my-loss.py' cannot be imported; name it like my_losses.py"),
        ("broken.py", "x = 1 +\n", "broken.py' cannot be imported: SyntaxError"),
        ("json.py", "x = 1\n", "json.py' has the name of a module that is imported already; rename the file"),
        (
            "my_run.py",
            "import equimetric as em\nem.train({'data': {'name': 'digits'}})\n",
            "my_run.py' starts a run or a study while it is imported; put that below `if __name__",
        ),
    ],
)
def test_what_is_wrong_with_a_plug_in_is_one_sentence(tmp_path, monkeypatch, name, text, message):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(em.EquimetricError) as error:
        load_with_plugins({**RUN, "plugins": [name]}, RunConfig)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_object_that_is_not_there_is_one_sentence(file):
    with pytest.raises(em.EquimetricError, match=r"'my_losses:gap' is of a plug-in that is not loaded; name its file"):
        em.objective("my_losses:gap")
    em.load_plugins(file)
    with pytest.raises(em.EquimetricError, match=r"has no 'gup'; it defines gap, plain, Boundary"):
        em.objective("my_losses:gup")
    with pytest.raises(em.EquimetricError, match=r"plugins are files or modules, such as \['my_losses.py'\], got 3"):
        load_with_plugins({**RUN, "plugins": 3}, RunConfig)


# A run that was trained with a plug-in.


@pytest.fixture
def run(file, tmp_path):
    em.train({**RUN, "method": "my_losses:Boundary", "plugins": [str(file)]}, folder=tmp_path / "run")
    forget_plugins()
    return tmp_path / "run"


def test_a_run_is_loaded_evaluated_and_exported_without_its_plug_in(run, tmp_path):
    images = em.load_dataset("digits").images[:3]
    model = em.load(run)
    with pytest.raises(em.EquimetricError, match=r"cannot be computed here: 'my_losses:Boundary' is of a plug-in"):
        model.learner.objective(torch.randn(4, 8), torch.tensor([0, 0, 1, 1]))
    em.load_plugins(run.parent / "plugins" / "my_losses.py")
    whole = em.load(run)
    assert "objective.loss.boundary" in whole.learner.state_dict()
    assert torch.equal(model.embed(images), whole.embed(images))
    forget_plugins()
    em.export_run(run, tmp_path / "model", certificate=None, onnx=False)
    assert torch.allclose(em.load(tmp_path / "model").embed(images), model.embed(images), atol=1e-6)


def test_the_folder_of_a_run_makes_no_code_run(run, tmp_path):
    """The text of the plug-in beside the run, and a path that the folder names, stay data."""
    text = (run / "plugin-my_losses.txt").read_text()
    assert text == GAP
    marker = tmp_path / "executed"
    planted = f"from pathlib import Path\nPath({str(marker)!r}).touch()\n"
    (run / "my_losses.py").write_text(planted)
    (run / "plugin-my_losses.txt").write_text(planted)
    config = RunFolder(run).config().model_copy(update={"plugins": [str(run / "my_losses.py")]})
    RunFolder(run).write_config(config)
    em.load(run)
    for repeat in (lambda: reproduce_run(run), lambda: em.train(RunFolder(run).config(), folder=tmp_path / "again")):
        with pytest.raises(em.EquimetricError, match="runs only where you name it"):
            repeat()
    assert not marker.exists()


def test_a_plug_in_that_has_changed_is_named(run, file, tmp_path):
    stored = json.loads((run / "environment.json").read_text())
    assert list(stored["plugins"]) == ["my_losses"]
    with pytest.raises(em.EquimetricError, match=r"cannot be repeated: it was trained with the plug-in .*my_losses.py"):
        reproduce_run(run)
    file.write_text(GAP.replace("0.5", "0.6"))
    em.load_plugins(file)
    with pytest.warns(em.EquimetricWarning, match="was trained with another version of 'my_losses'"):
        em.load(run)
    with pytest.raises(
        em.EquimetricError, match=r"another version of 'my_losses', of which it keeps the text; restore"
    ):
        reproduce_run(run)
    with pytest.raises(em.EquimetricError, match=r"holds a run with another version of 'my_losses'"):
        em.train({**RUN, "method": "my_losses:Boundary", "plugins": [str(file)]}, folder=run)


def test_a_start_that_fails_leaves_no_text_behind(file, tmp_path):
    file.write_text(GAP + "\n\ndef broken(pairs):\n    raise RuntimeError('broken')\n")
    with pytest.raises(RuntimeError, match="broken"):
        em.train({**RUN, "method": "my_losses:broken", "plugins": [str(file)]}, folder=tmp_path / "run")
    if (tmp_path / "run").exists():
        left = {file.name for file in (tmp_path / "run").iterdir()}
        assert "metrics.jsonl" in left, "it is kept where the log explains the failure"
