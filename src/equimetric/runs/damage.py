"""Damaged runs: detected when they are read, set aside when they are trained again."""

from __future__ import annotations

import warnings
import zlib
from itertools import count
from zipfile import BadZipFile

from equimetric.checksums import read_document
from equimetric.configuration import read_toml
from equimetric.errors import DamagedFileError
from equimetric.runs.folder import RunFolder
from equimetric.runs.result import RunResult

__all__ = ["read_intact_result", "set_aside", "set_aside_if_damaged"]


def read_intact_result(run: RunFolder) -> RunResult | None:
    """The result of a run, None while there is none; raises an error that names a file that is damaged.

    Weights are not read: they are large, and `load` checks them.
    """
    result = run.result()
    if result is None or result.status == "failed":
        return result
    try:
        name = "config.toml"
        read_document(run.path / name, "run the same command again")
        read_toml(run.path / name)
        name = "metrics.jsonl"
        if not all(isinstance(line, dict) for line in run.history()):
            raise ValueError("a line is not an object")
        name = "per_query.npz"
        if run.has_per_query():
            run.per_query()
        name = "profile.npz"
        run.profile()
    except DamagedFileError:
        raise
    except (ValueError, KeyError, EOFError, OSError, BadZipFile, zlib.error) as error:
        reason = "it is missing" if not (run.path / name).exists() else error
        raise DamagedFileError(f"{run.path / name} is damaged ({reason})", "run the same command again") from None
    return result


def set_aside_if_damaged(run: RunFolder) -> None:
    """Rename the folder of a damaged run, so that it can be trained again and no intact file is lost."""
    try:
        read_intact_result(run)
    except DamagedFileError as error:
        set_aside(run, error)


def set_aside(run: RunFolder, damage: DamagedFileError) -> None:
    """Rename the folder of a run to 'damaged_…' next to it, once no other process uses it, with a warning."""
    with run.lock():
        name = "damaged_" + run.path.name.replace("-", "_")
        new_path = next(
            path for n in count() if not (path := run.path.with_name(f"{name}_{n}" if n else name)).exists()
        )
        with run.explain_write_errors():
            run.path.rename(new_path)
    warnings.warn(
        f"{damage.problem}; the run is trained again, and what is left of it is kept in {str(new_path)!r}", stacklevel=2
    )
