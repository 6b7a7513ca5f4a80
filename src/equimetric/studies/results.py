"""The result of a run as a study sees it: a damaged run is a failed one, and stands in the way of no other."""

from __future__ import annotations

from equimetric.errors import DamagedFileError, EquimetricError
from equimetric.runs.damage import read_whole
from equimetric.runs.folder import RunFolder
from equimetric.runs.result import RunResult
from equimetric.studies.jobs import RunEntry

__all__ = ["needs_training", "read_result"]


def read_result(entry: RunEntry) -> RunResult | None:
    """The result of a run; a failed one with the reason where it cannot be read; None while there is none."""
    try:
        return read_whole(RunFolder(entry.folder))
    except DamagedFileError as error:
        why = f"{error.problem}; `equimetric compare` with the study's file trains this run again, and no other"
    except EquimetricError as error:
        why = str(error)
    key = entry.key
    return RunResult(status="failed", role=key.role, method=key.method, seed=key.seed, error=why)


def needs_training(entry: RunEntry, *, retry_failed: bool) -> bool:
    """Whether a run has no result, is damaged, or failed and is to be repeated."""
    try:
        result = read_whole(RunFolder(entry.folder))
    except DamagedFileError:
        return True
    except EquimetricError:
        # Whole, but of a newer version: not to be replaced.
        return False
    return result is None or (retry_failed and result.status == "failed")
