"""Progress of slow work: bars in a terminal, lines in a log."""

import io
import time

import pytest

from equimetric import progress
from equimetric.progress import format_seconds, print_status, set_progress_output, share_bar, show_progress, track


class Terminal(io.StringIO):
    def isatty(self):
        return True


def open_terminal(monkeypatch):
    """Standard error as a terminal; not a fixture, because the capture of each phase sets it anew."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return terminal


@pytest.fixture
def lines(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    set_progress_output("lines")
    yield
    set_progress_output("bar")


def test_a_bar_with_the_time_left_in_a_terminal(monkeypatch):
    terminal = open_terminal(monkeypatch)
    for number in track(range(4), "Reading [bold]", 4):
        time.sleep(0.2 if number == 2 else 0)
    assert "Reading [bold]" in terminal.getvalue()
    assert "2/4" in terminal.getvalue()
    assert "0:00:0" in terminal.getvalue()


def test_work_shows_itself_in_the_bar_of_the_command(monkeypatch):
    terminal = open_terminal(monkeypatch)
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar, share_bar(bar):
        with show_progress("Features", 10, completed=4) as advance:
            (task,) = bar.tasks
            assert (task.description, task.completed, task.total) == ("Features", 4, 10)
            advance(3)
            assert task.completed == 7
        assert bar.tasks == []
        print_status("a word")
    assert "a word" in terminal.getvalue()


def test_lines_in_a_log(capsys, lines):
    with show_progress("Features", 4000, completed=1000) as advance:
        advance(500)
    first, last = capsys.readouterr().err.splitlines()
    assert first == "Features: 1,500 of 4,000 (38%), about 0 s left"
    assert last == "Features: done after 0 s"


def test_short_work_leaves_no_line(capsys, lines, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 10.0)
    assert sum(track(range(5), "Adding", 5)) == 10
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("output", ["bar", "nothing"])
def test_nothing_in_a_log_unless_it_is_asked_for(capsys, monkeypatch, output):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    set_progress_output(output)
    try:
        assert sum(track(range(5), "Adding", 5)) == 10
        print_status("a word")
    finally:
        set_progress_output("bar")
    assert capsys.readouterr().err == ""


def test_control_characters_of_names_are_not_printed(capsys, lines):
    print_status("a\x1b[31mname")
    assert "\x1b" not in capsys.readouterr().err


def test_durations():
    assert [format_seconds(seconds) for seconds in (3, 99, 100, 6000, 7500)] == [
        "3 s",
        "99 s",
        "2 min",
        "1 h 40 min",
        "2 h 05 min",
    ]
