"""What all tests share: one thread, a cache of their own, and no way out to the network."""

import os
import re
import signal
import socket
import sys

import pytest
import torch

LOOPBACK = ("127.", "::1", "localhost")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every program they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# What a test file has that computes numbers: what compiled code, threads and the processor may change.
COMPUTES = re.compile(r"^\s*(?:import|from) (?:torch|numpy)\b|\b(?:approx|assert_close|allclose)\(", re.MULTILINE)


def pytest_collection_modifyitems(items):
    """Mark the tests of files that compute numbers, for `make test-processors`."""
    computes = {path: COMPUTES.search(path.read_text(encoding="utf-8")) for path in {item.path for item in items}}
    for item in items:
        if computes[item.path]:
            item.add_marker("numbers")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("EQUIMETRIC_CACHE", os.environ.get("EQUIMETRIC_TEST_CACHE") or str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    connect = socket.socket.connect

    def local_only(self, address):
        if self.family != socket.AF_UNIX and not str(address[0]).startswith(LOOPBACK):
            raise AssertionError(f"a test tried to reach {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def equimetric(monkeypatch, capsys):
    """Run the command line in this process: exit code, what it printed, and what it printed as an error."""
    from equimetric import progress
    from equimetric.cli import main

    monkeypatch.setattr(progress, "_output", "bar")  # a command changes it for the whole process
    from equimetric.cli.console import console

    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(console, "width", 100)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["equimetric", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        printed = capsys.readouterr()
        return exit_.value.code, printed.out, printed.err

    from own_components import forgotten_plugins

    with forgotten_plugins():
        yield run


@pytest.fixture
def in_process(monkeypatch):
    """Studies train in this process, one run after the other: no worker has to be started."""
    from equimetric.studies import comparison
    from equimetric.studies.engines import open_engine

    monkeypatch.setattr(comparison, "open_engine", lambda name, slots: open_engine("serial", slots))


@pytest.fixture
def without_profiles(monkeypatch):
    """Studies store no maps and thresholds for reports, which take longer than a few steps."""
    from dataclasses import replace

    from equimetric.studies.plan import StudyPlan

    make_job = StudyPlan.make_job
    monkeypatch.setattr(StudyPlan, "make_job", lambda *given: replace(make_job(*given), profile=False))


@pytest.fixture
def is_one_sentence():
    """Whether an error is one line for the user, without a traceback."""

    def check(error):
        lines = error.strip().splitlines()
        return len(lines) == 1 and lines[0].startswith("equimetric: ") and "Traceback" not in error

    return check
