"""The examples of the documentation run as they stand."""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from own_components import forgotten_plugins

from equimetric.objectives.recipes import recipes
from equimetric.runs.configuration import RunConfig
from equimetric.runs.plugin_config import load_with_plugins

ROOT = Path(__file__).parents[2]


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def shown_outputs(page):
    """What a page shows as printed, line by line: a block of text that follows one of Python, without '…' for more."""
    shown = re.findall(r"```python\n[^`]*```\n\n```text\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [line for block in shown for line in block.splitlines() if line != "…"]


REGISTERS = "docs/guides/your-own.md"
ELSEWHERE = {"docs/data.md", "docs/in-your-loop.md", REGISTERS}
"""Pages whose examples are run by the tests of their subject."""

PAGES = ["README.md", *sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE and python_blocks(page)])
def test_examples_run_one_after_another(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names, everything = {}, ""
    for block in python_blocks(page):
        exec(compile(block, page, "exec"), names)
        promised = re.findall(r"print\(.*?\)\s+# (.*)", block)
        printed = capsys.readouterr().out
        assert all(line in printed for line in promised)
        everything += printed
    for line in shown_outputs(page):
        assert line in everything


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/start/{way}.md" for way in ("engineer", "programmer", "researcher"))]
)
def test_a_type_checker_accepts_the_first_examples(page, tmp_path):
    file = tmp_path / "page.py"
    file.write_text("\n".join(python_blocks(page)))
    # torch's `backward` has no types.
    options = ["--allow-untyped-calls", "--config-file", str(ROOT / "pyproject.toml")]
    shown = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(file)], cwd=ROOT, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stdout


def test_components_of_your_own_run_in_a_process_of_their_own(tmp_path):
    """They register, and no other test should find them."""
    code = "\n".join(python_blocks(REGISTERS))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(line in done.stdout for line in re.findall(r"print\(.*?\)\s+# (.*)", code))


def test_the_commands_of_one_threshold_run(tmp_path, monkeypatch, capsys, equimetric):
    """After the examples have written the files; those on a run of your own images are left out."""
    page = "docs/one-threshold.md"
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in python_blocks(page):
        exec(compile(block, page, "exec"), names)
    capsys.readouterr()
    text = (ROOT / page).read_text().partition("## Reading the pictures")[0]
    commands = [shlex.split(line, comments=True) for line in re.findall(r"^\$ equimetric (.*)", text, re.MULTILINE)]
    ended = {" ".join(words): equimetric(*words) for words in commands}
    assert len(ended) == 7
    for command, (code, out, err) in ended.items():
        assert code == ("blurred.npz" in command), err
        assert ("shifted: recalibrate" in out) == ("blurred.npz" in command)
    written = {file.name for file in tmp_path.rglob("*") if file.suffix in (".json", ".png")}
    assert written > {"threshold.json", "plain.json", "identify.json", "cohort.png", "calibration_classes.png"}


def test_the_pictures_of_the_pages_exist():
    for page in map(ROOT.joinpath, PAGES):
        for picture in re.findall(r"!\[.*?\]\((.*?)\)", page.read_text()):
            assert (page.parent / picture).read_bytes().startswith(b"\x89PNG")


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


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
    with forgotten_plugins():
        assert load_with_plugins(file, RunConfig).method in recipes()


def test_the_figures_beside_the_advice_of_a_paper_are_those_of_the_studies_they_name():
    page = ROOT / "docs" / "understand" / "mining.md"
    rows = [line.split("|")[2:4] for line in page.read_text(encoding="utf-8").splitlines() if "../../results/" in line]
    assert len(rows) == 9
    for finding, study in rows:
        files = re.findall(r"\((\.\./\.\./results/[^)]+)\)", study)
        texts = " ".join((page.parent / file).read_text(encoding="utf-8") for file in files)
        figures = re.findall(r"\b\d+\.\d\b", finding)
        assert figures, finding
        assert [figure for figure in figures if figure not in texts] == [], finding


def test_methods_of_advice_have_the_figures_of_their_rows():
    """The rows of the tables that the page quotes, by name: a figure of another row would be found in the text, too."""
    defaults = (ROOT / "results" / "defaults" / "README.md").read_text(encoding="utf-8").split("\n## ")
    sections = {text.partition("\n")[0]: text for text in defaults}
    quoted = {
        "grocery81, frozen EfficientNet-Lite0": {
            "angular": "51.1", "angular_npairs_combo": "51.0", "ranked_list": "51.9", "prototypical": "48.4",
        },
        "glyphs, small CNN from scratch": {
            "triplet_batch_hard": "68.3", "triplet_semihard": "68.1", "triplet": "67.2", "angular": "68.6",
            "angular_npairs_combo": "63.0", "ranked_list": "67.4", "prototypical": "58.2", "contrastive": "70.0",
            "normalized_softmax": "62.2",
        },
        "Omniglot, small CNN from scratch": {
            "triplet_batch_hard": "36.9", "triplet_semihard": "37.0", "triplet": "39.9",
        },
    }  # fmt: skip
    page = (ROOT / "docs" / "understand" / "mining.md").read_text(encoding="utf-8")
    for title, rows in quoted.items():
        for method, figure in rows.items():
            assert re.search(rf"^\| {method} \| \d+ \| {re.escape(figure)} \|", sections[title], re.MULTILINE), method
            assert figure in page
