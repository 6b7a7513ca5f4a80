"""Adding a command, what failed runs do to the exit code, and user text in the terminal."""

import subprocess
import sys

import numpy as np
import pytest

from equimetric.cli.console import literal

HELLO = '''
from equimetric.cli.command import command


@command("greet world", panel="Greetings", examples="equimetric greet world")
def greet_world():
    """Greet [everybody]."""
    print("hello, world")
'''


def test_a_command_is_one_file(tmp_path):
    (tmp_path / "greet.py").write_text(HELLO)
    code = f"import equimetric.cli as cli; cli.__path__.append({str(tmp_path)!r}); cli.main()"

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
        ).stdout

    assert "─ Greetings" in run("--help")
    assert run("greet", "world") == "hello, world\n"
    shown = run("greet", "world", "--help")
    assert "Greet [everybody]." in shown
    assert "Examples:" in shown


FAILING = """
name = "fragile"
seeds = [0]
baselines = []
methods.contrastive = {}
methods.bad = { method = "arcface", objective_lr = 1e38 }
optimizer.name = "sgd"
data.name = "digits"
model.dim = 8
batch = { classes = 2, samples = 8 }
training = { steps = 20, validate_every = 10 }
"""


def test_a_failed_run_is_named_with_its_reason_and_exit_code_1(equimetric, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(FAILING)
    code, out, err = equimetric("compare", study, "--output", tmp_path)
    assert code == 1, err
    assert "finished contrastive, seed 0" in err
    assert "failed bad, seed 0" in err
    assert "finished bad" not in err
    assert "0 of 1, 1 failed" in out
    assert "Report: " in out
    (reason,) = (line for line in err.splitlines() if line.startswith("equimetric: bad, seed 0 failed: "))
    assert "became nan at step" in reason
    again, out, err = equimetric("compare", study, "--output", tmp_path)
    assert again == 1
    assert reason in err.splitlines()
    assert "--retry-failed" in err
    code, _, err = equimetric("report", tmp_path / "fragile")
    assert code == 0
    assert reason in err.splitlines()


@pytest.mark.parametrize(
    "name", ["o[bold]z", "[/]", "\x1b[2Jclear", "\x9b31m", "a\rb", "\x07", "[link=http://x]y[/link]"]
)
def test_text_of_users_is_literal(name):
    shown = literal(f"class {name}")
    assert shown.spans == []
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in shown.plain)
    assert name.translate(dict.fromkeys([7, 13, 27, 0x9B], "�")) in shown.plain


def test_class_names_reach_the_terminal_literally(equimetric, tmp_path):
    generator = np.random.default_rng(0)
    names = np.array([f"o[bold]z\x1b[31m{number}" for number in range(12)])
    labels = np.repeat(names, 6)
    file = tmp_path / "[red]space.npz"
    vectors = np.repeat(generator.normal(size=(12, 4)), 6, axis=0) + 0.8 * generator.normal(size=(72, 4))
    np.savez(file, embeddings=vectors, labels=labels)
    code, out, err = equimetric("calibrate", file, "--far", "0.05", "--out", tmp_path / "[red]out.json")
    assert code == 0, err
    assert "[red]out.json" in out
    assert "\x1b" not in out
    code, _, err = equimetric("evaluate", tmp_path / "[bold]missing\x1b[2J.npz")
    assert code == 2
    assert "[bold]missing" in err
    assert "\x1b" not in err
