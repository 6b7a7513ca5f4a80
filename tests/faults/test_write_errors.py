"""A write that fails is one sentence; the same command continues once there is space."""

import errno
import os

import pytest
from file_events import Fault
from run_faults import content_of, run_with

from equimetric.errors import StorageError

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO))


def check(undisturbed, folder, fault):
    """The fault is one sentence, no result is written because of it, and the next start ends well."""
    _, error = run_with(fault, folder)
    assert isinstance(error, StorageError), f"{fault}: {error!r}"
    why = "the disk is full" if fault.error is FULL else os.strerror(errno.EIO)
    assert str(error) == (
        f"cannot write to the run folder {str(folder)!r}: {why}; nothing finished is lost: make it writable, with "
        "space left, and run the same command again"
    )
    _, error = run_with(None, folder)
    assert error is None, f"{fault}: {error!r}"
    assert content_of(folder) == undisturbed[1], fault


def count(undisturbed, kind):
    return [one for one, _ in undisturbed[2]].count(kind)


@pytest.mark.parametrize("number", [1, 12])
def test_a_full_disk(undisturbed, tmp_path, number):
    check(undisturbed, tmp_path / "run", Fault(number, FULL, kind="write", lasting=True, torn=True))


@pytest.mark.parametrize("number", [4, 11])
def test_an_fsync_that_fails(undisturbed, tmp_path, number):
    check(undisturbed, tmp_path / "run", Fault(number, BROKEN, kind="fsync"))


@pytest.mark.slow
@pytest.mark.parametrize("torn", [True, False])
def test_a_disk_that_is_full_from_any_write_on(undisturbed, tmp_path, torn):
    for number in range(count(undisturbed, "write")):
        check(undisturbed, tmp_path / f"{number}", Fault(number, FULL, kind="write", lasting=True, torn=torn))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["create", "open", "fsync", "rename", "unlink", "mkdir", "chmod"])
def test_every_event_of_a_kind_fails_once(undisturbed, tmp_path, kind):
    assert count(undisturbed, kind) > 0
    for number in range(count(undisturbed, kind)):
        check(undisturbed, tmp_path / f"{number}", Fault(number, BROKEN, kind=kind))
