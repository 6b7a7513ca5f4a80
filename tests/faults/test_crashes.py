"""A crash at any event that changes a file: the next start ends as if there had been none, and nothing is left over."""

import pytest
from file_events import CrashError, Fault
from run_faults import FROZEN, WITHOUT_CHECKPOINTS, content_of, run_with

from equimetric.runs.run_cache import RunCache

KINDS = {"create", "open", "write", "truncate", "fsync", "rename", "unlink", "mkdir", "chmod"}


def crash(folder, number, *, torn=False, power=False):
    events, error = run_with(Fault(number, CrashError(), lasting=True, torn=torn), folder)
    assert isinstance(error, CrashError)
    if power:
        events.lose_power()


def check_every(undisturbed, tmp_path, numbers, **how):
    _, expected, _ = undisturbed
    for number in numbers:
        folder = tmp_path / f"crash{number}"
        crash(folder, number, **how)
        _, error = run_with(None, folder)
        assert error is None, f"event {number}: {error!r}"
        assert content_of(folder) == expected, f"event {number}"


def test_all_kinds_of_events_are_seen(undisturbed, tmp_path):
    _, _, events = undisturbed
    crash(tmp_path / "run", len(events) - 1)
    resumed, _ = run_with(None, tmp_path / "run")
    kinds = {kind for kind, _ in events} | {kind for kind, _ in resumed.seen}
    assert kinds == KINDS - {"truncate"}
    crash(tmp_path / "other", len(events) // 2)
    resumed, _ = run_with(None, tmp_path / "other")
    assert "truncate" in {kind for kind, _ in resumed.seen}


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_crash(undisturbed, tmp_path, part):
    check_every(undisturbed, tmp_path, [int(part * len(undisturbed[2]))])


def test_what_was_not_synced_is_lost_with_the_power(undisturbed, tmp_path):
    check_every(undisturbed, tmp_path, [len(undisturbed[2]) // 2], power=True)


@pytest.mark.slow
def test_a_crash_at_every_event(undisturbed, tmp_path):
    check_every(undisturbed, tmp_path, range(len(undisturbed[2])))


@pytest.mark.slow
def test_a_loss_of_power_at_every_event(undisturbed, tmp_path):
    check_every(undisturbed, tmp_path, range(len(undisturbed[2])), power=True)


@pytest.mark.slow
def test_a_crash_in_the_middle_of_every_write(undisturbed, tmp_path):
    writes = [number for number, (kind, _) in enumerate(undisturbed[2]) if kind == "write"]
    assert len(writes) > 15
    check_every(undisturbed, tmp_path, writes, torn=True)


@pytest.mark.slow
def test_a_crash_at_every_event_of_a_resumed_run(undisturbed, tmp_path):
    """Twice crashed, the second time while it resumes."""
    _, expected, events = undisturbed
    first = len(events) // 2
    crash(tmp_path / "counted", first)
    resumed, _ = run_with(None, tmp_path / "counted")
    for number in range(len(resumed.seen)):
        folder = tmp_path / f"crash{number}"
        crash(folder, first)
        crash(folder, number, power=True)
        _, error = run_with(None, folder)
        assert error is None, f"event {number}: {error!r}"
        assert content_of(folder) == expected, f"event {number}"


def test_a_finished_run_survives_a_loss_of_power(tmp_path):
    events, error = run_with(None, tmp_path / "run")
    assert error is None
    before = content_of(tmp_path / "run")
    events.lose_power()
    assert content_of(tmp_path / "run") == before


def check_short_run(config, folder, numbers, cache=None):
    """Crashes of a run that is over before its first checkpoint, each with a loss of power."""
    whole, error = run_with(None, folder / "undisturbed", config, cache)
    assert error is None
    expected = content_of(folder / "undisturbed")
    for number in numbers(len(whole.seen)):
        events, error = run_with(Fault(number, CrashError(), lasting=True), folder / f"{number}", config, cache)
        assert isinstance(error, CrashError)
        events.lose_power()
        _, error = run_with(None, folder / f"{number}", config, cache)
        assert error is None, f"event {number} of {whole.seen}: {error!r}"
        assert content_of(folder / f"{number}") == expected, f"event {number}"
    return whole.seen


def some(number):
    return [number // 4, number // 2, number - 3]


def test_a_crash_of_a_run_without_checkpoints(tmp_path):
    seen = check_short_run(WITHOUT_CHECKPOINTS, tmp_path, some)
    assert not any(name.startswith("checkpoint") for _, name in seen)


def test_a_crash_of_a_run_that_links_its_backbone(tmp_path):
    cache = RunCache()
    run_with(None, tmp_path / "first", FROZEN, cache)
    seen = check_short_run(FROZEN, tmp_path, some, cache)
    assert ("link", "backbone.safetensors") in seen
    assert ("rename", "backbone.safetensors") not in seen


@pytest.mark.slow
@pytest.mark.parametrize("config", [WITHOUT_CHECKPOINTS, FROZEN])
@pytest.mark.parametrize("share", [False, True])
def test_a_crash_at_every_event_of_a_short_run(tmp_path, config, share):
    cache = RunCache() if share else None
    run_with(None, tmp_path / "first", config, cache)
    check_short_run(config, tmp_path, range, cache)
