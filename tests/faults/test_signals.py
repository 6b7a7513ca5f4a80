"""SIGINT, SIGTERM and SIGKILL at any moment of a study: resumed, it equals one that was never disturbed."""

import os
import random
import re
import signal
import time

import pytest
from study_cases import contents, left_behind, processes_of, run, start, wait_until, write_study

from equimetric.studies import load_study

pytestmark = pytest.mark.slow

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
MOMENTS = [(SIGNALS[number % 3], number) for number in range(20)]
"""Twenty signals, each at a moment that follows from its seed."""

SENTENCE = r"equimetric: stopped; \d of 6 runs are finished; run the same command again to resume"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def undisturbed(study, tmp_path_factory):
    output = tmp_path_factory.mktemp("undisturbed")
    assert run(study, output).returncode == 0
    return output / "small"


def table_of(folder):
    return [(one.method, one.seed, one.status, dict(one.metrics)) for one in load_study(folder).runs]


def lines_logged(folder):
    return sum(file.read_bytes().count(b"\n") for file in folder.rglob("metrics.jsonl"))


def disturb(process, number, seed, folder, total):
    """Send a signal once a study has logged a number of lines, and a little later."""
    draw = random.Random(seed)
    lines, delay = draw.randrange(total), draw.uniform(0, 0.05)
    assert wait_until(lambda: process.poll() is not None or (folder / "index.jsonl").exists())
    assert wait_until(lambda: process.poll() is not None or lines_logged(folder) >= lines)
    time.sleep(delay)
    assert process.poll() is None, "the study ended before it could be disturbed"
    if number == signal.SIGINT and draw.random() < 0.5:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)


def require_whole(number, seed, study, undisturbed, output):
    process = start(study, output)
    # The last lines may be those of runs whose evaluation has begun, with nothing left to disturb.
    disturb(process, number, seed, output / "small", lines_logged(undisturbed) - 4)
    _, err = process.communicate(timeout=120)
    assert wait_until(lambda: not processes_of(process.pid), 20), "a process was left"
    assert "Traceback" not in err
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 128 + number
        assert re.fullmatch(SENTENCE, err.splitlines()[-1]), err
    again = run(study, output)
    assert again.returncode == 0, again.stderr
    assert "Traceback" not in again.stderr
    assert contents(output / "small") == contents(undisturbed)
    assert table_of(output / "small") == table_of(undisturbed)
    assert left_behind(output / "small") == []


def test_the_undisturbed_study_is_whole(undisturbed):
    assert len(contents(undisturbed)) == 6 * 4
    assert left_behind(undisturbed) == []
    assert lines_logged(undisturbed) > 50


@pytest.mark.parametrize(("number", "seed"), MOMENTS)
def test_a_signal_at_any_moment_changes_nothing(number, seed, study, undisturbed, tmp_path):
    require_whole(number, seed, study, undisturbed, tmp_path)


def test_a_second_interrupt_stops_at_once(study, tmp_path):
    """Two signals in a row: no waiting for steps, no traceback, and the same command resumes."""
    process = start(study, tmp_path, "--training.steps", "4000", "--training.validate_every", "4000")
    assert wait_until(lambda: lines_logged(tmp_path) > 40)
    process.send_signal(signal.SIGINT)
    time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert wait_until(lambda: not processes_of(process.pid), 20)
