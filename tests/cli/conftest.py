"""The command line inside the test's own process."""

import sys

import pytest

from equimetric.cli import main
from equimetric.cli.console import console


@pytest.fixture
def equimetric(monkeypatch, capsys):
    """Run the command line in this process: exit code, what it printed, and what it printed as an error."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(console, "width", 100)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["equimetric", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        printed = capsys.readouterr()
        return exit_.value.code, printed.out, printed.err

    return run


@pytest.fixture
def is_one_sentence():
    """Whether an error is one line for the user, without a traceback."""

    def check(error):
        lines = error.strip().splitlines()
        return len(lines) == 1 and lines[0].startswith("equimetric: ") and "Traceback" not in error

    return check
