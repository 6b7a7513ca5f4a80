"""The examples of `docs/in-your-loop.md` run; those of libraries that are not installed are left out."""

import ast
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "in-your-loop.md"
OPTIONAL = {"pytorch_lightning", "accelerate", "datasets"}


def imported(block):
    nodes = ast.walk(ast.parse(block))
    return {alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}


@pytest.mark.filterwarnings("ignore")
def test_the_examples_run_one_after_another(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert set.union(*map(imported, blocks)) > OPTIONAL
    for block in blocks:
        if all(map(find_spec, imported(block) & OPTIONAL)):
            exec(compile(block, str(PAGE), "exec"), names)
            promised = re.findall(r"print\(.*?\)+\s+# (.*)", block)
            printed = capsys.readouterr().out
            assert all(line in printed for line in promised), printed


def test_the_script_for_several_processes_runs(tmp_path):
    script = re.search(r"```py\n(# train\.py\n.*?)```", PAGE.read_text(), re.DOTALL)[1]
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=tmp_path, timeout=300, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"loss [\d.]+, recall@1 [\d.]+\n", ran.stdout), "once, by one process"
