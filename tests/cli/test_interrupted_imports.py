"""Ctrl-C while Python imports: one sentence and the exit code of the signal, never a traceback."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

SIGNAL_INSIDE = """
    import signal

    try:
        signal.raise_signal(signal.{name})
    except BaseException as error:  # as extension modules do
        raise ImportError("initialization failed") from error
"""


def run_with_module(folder, module, name, *arguments, **environment):
    """The command line where importing `module` gets a signal in its middle."""
    (folder / f"{module}.py").write_text(textwrap.dedent(SIGNAL_INSIDE.format(name=name)))
    return subprocess.run(
        [sys.executable, "-m", "equimetric", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{SOURCE}", **environment},
    )


@pytest.mark.parametrize("module", ["typer", "rich", "torch", "pydantic"])
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_inside_an_import_ends_in_one_sentence(module, name, code, tmp_path):
    ended = (
        run_with_module(tmp_path, module, name, "methods", "triplet")
        if module != "torch"
        else run_with_module(tmp_path, module, name, "train", "--method", "triplet")
    )
    assert ended.stderr == "equimetric: stopped; run the same command again\n"
    assert ended.returncode == code


def test_the_other_ranks_of_torchrun_say_nothing(tmp_path):
    ended = run_with_module(tmp_path, "typer", "SIGINT", "--help", RANK="1")
    assert (ended.stderr, ended.returncode) == ("", 130)


def test_an_interrupt_outside_of_imports_is_raised():
    code = (
        "import signal\nfrom equimetric.stopping import Stopped, end_on_signals\n"
        "try:\n    with end_on_signals():\n        signal.raise_signal(signal.SIGINT)\n"
        "except Stopped as stop:\n    print(stop.exit_code)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)}
    )
    assert ended.stdout == "130\n", ended.stderr
