"""The examples of the documentation run as they stand."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from equimetric.configuration import load_config
from equimetric.objectives.recipes import recipes
from equimetric.runs.configuration import RunConfig

ROOT = Path(__file__).parents[2]


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/studies.md", "docs/objectives.md", "docs/evaluation.md"])
def test_examples_run_one_after_another(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in python_blocks(page):
        exec(compile(block, page, "exec"), names)
        promised = re.findall(r"print\(.*?\)\s+# (.*)", block)
        printed = capsys.readouterr().out
        assert all(line in printed for line in promised)


def test_adding_a_loss_in_one_file_works_as_written(tmp_path):
    """Follow CONTRIBUTING to the letter in a copy of the package, and run the laws over the new loss."""
    block = python_blocks("CONTRIBUTING.md")[0]
    file = re.match(r"# (src/\S+)", block)[1]
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT / "src", copy / "src")
    (copy / file).write_text(block)
    code = "import equimetric as em; print(em.objective('hinge_pairs', threshold=0.3)); print(em.__file__)"
    environment = {"PYTHONPATH": str(copy / "src"), "PATH": "/usr/bin:/bin"}
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    ).stdout
    assert str(copy) in shown
    assert "threshold=0.3" in shown
    laws = ROOT / "tests" / "core" / "test_contract.py"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "hinge_pairs", laws],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stdout
    assert int(re.search(r"(\d+) passed", ran.stdout)[1]) > 15


def test_the_demo_study_is_part_of_the_package():
    package = Path(importlib.util.find_spec("equimetric").origin).parent
    assert (package / "studies" / "demo.toml").exists()


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.toml")), ids=lambda file: file.name)
def test_the_examples_are_valid_configurations(file):
    assert load_config(file, RunConfig).method in recipes()
