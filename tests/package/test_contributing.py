"""One component of each kind, added by the files of CONTRIBUTING to the letter: in a checkout, and as a plug-in."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {
    re.match(r"# (src/\S+)", block)[1]: block
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
}
ROOMS = {
    "losses",
    "selection",
    "references",
    "batches",
    "data",
    "backbones",
    "evaluation/metrics",
    "learners",
    "report/sections",
    "cli",
}

USE = """
import sys, warnings
import torch
import equimetric as em
from equimetric.backbones import BACKBONES, HEADS
from equimetric.batches import BATCHES, build_batches
from equimetric.cli import main
from equimetric.evaluation import evaluate
from equimetric.learners import LEARNERS
from equimetric.report.page import render_html
from equimetric.report.section import SECTIONS
from equimetric.studies.records import RunRecord, StudyRecord
from equimetric.training import train

embeddings, labels = torch.randn(8, 4, requires_grad=True), torch.arange(8) // 2
em.objective("hinge_pairs", selection="close_negatives", references="no_gradient")(embeddings, labels).backward()
assert embeddings.grad.abs().sum() > 0
assert "hinge_pairs" in em.recipes()

data = em.load_dataset("stripes", classes=14)
assert len(data) == 84
rows = build_batches("one_class", data.labels, classes=2, samples=2, batches=5).batch(0)
assert len(rows) == 4 and len(data.labels[rows].unique()) == 1
assert "mean_colour" in BACKBONES and "tanh" in HEADS and "two_heads" in LEARNERS and "speed" in SECTIONS

trained = train(
    {
        "method": "hinge_pairs",
        "learner": {"name": "two_heads", "options": {"weight": 0.5}},
        "data": {"name": "stripes", "transform": "none"},
        "model": {"backbone": "mean_colour", "head": "tanh", "dim": 3},
        "batch": {"classes": 2, "samples": 3},
        "training": {"steps": 4, "validate_every": 2, "log_every": 2},
        "evaluation": {"metrics": ["class_count", "recall@1"]},
    },
    folder=sys.argv[1],
)
assert trained.metrics["class_count"] == 6, trained.metrics
assert trained.embed(data.images[:5]).shape == (5, 6)
assert evaluate(embeddings.detach(), labels, metrics=["class_count"])["class_count"] == 4

run = RunRecord("a", "trained", 0, "done", None, {"map@r": 0.5}, (), 41.6, 3)
page = render_html(StudyRecord("s", "S", ("one",), {}, (run,)))
assert "All runs together took 42 seconds." in page

sys.argv = ["equimetric", "hello", "Ada"]
main()
"""


def use(environment, folder):
    """Run the script in a process of its own."""
    given = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    ran = subprocess.run([sys.executable, "-c", USE, str(folder)], capture_output=True, text=True, env=given)
    assert ran.returncode == 0, ran.stderr
    assert "Hello, Ada." in ran.stdout


def test_there_is_an_example_of_every_kind():
    assert {str(Path(file).parent.relative_to("src/equimetric")) for file in FILES} == ROOMS
    assert len(FILES) == len(ROOMS) + 1, "a backbone and a head share a room"


def test_one_file_of_each_kind_in_a_checkout_is_found(tmp_path):
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT / "src", copy / "src")
    for file, block in FILES.items():
        (copy / file).write_text(block)
    use({"PYTHONPATH": str(copy / "src")}, tmp_path / "run")


def test_the_same_files_in_a_package_of_their_own_are_found(tmp_path):
    package = tmp_path / "my_parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for file, block in FILES.items():
        (package / Path(file).name).write_text(block)
    metadata = tmp_path / "my_parts-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-parts\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[equimetric.plugins]\nmy_parts = my_parts\n")
    use({"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")])}, tmp_path / "run")


@pytest.mark.parametrize("file", FILES, ids=lambda file: Path(file).stem)
def test_the_examples_are_formatted_and_checked_as_the_code_is(file, tmp_path):
    copy = tmp_path / file
    copy.parent.mkdir(parents=True)
    copy.write_text(FILES[file])
    ruff = [Path(sys.executable).parent / "ruff", "--config", ROOT / "pyproject.toml"]
    for arguments in (["check", "--no-cache", "--ignore", "ARG", copy], ["format", "--check", "--no-cache", copy]):
        ran = subprocess.run([ruff[0], arguments[0], *ruff[1:], *arguments[1:]], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
