"""The exceptions whose message a user reads, and the hint for a misspelt name."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["DamagedFileError", "EquimetricError", "StorageError", "did_you_mean", "no_tensor", "unknown_name"]


class EquimetricError(ValueError):
    """Something the user gave cannot be used; the message says what is wrong and what to do.

    The command line prints the message alone, without a traceback, and exits with code 2.
    """


class StorageError(EquimetricError):
    """A file cannot be written: the disk is full, say, or a folder read-only.

    It says nothing about the run that was writing, so it is never stored as a run's result.
    """


class DamagedFileError(EquimetricError):
    """A stored file is not what was written: `problem` names the file, and the message the way out, too."""

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem}; {advice}" if advice else problem)
        self.problem = problem


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """The end of an error message: the nearest valid name, or all of them where none is near."""
    valid = sorted(set(valid))
    near = get_close_matches(name, valid, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"valid names: {', '.join(valid)}" if valid else "there are none to choose from"


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> EquimetricError:
    """The error for a name that is not known, with the nearest one that is."""
    return EquimetricError(f"unknown {kind} {name!r}; {did_you_mean(name, valid)}")


def no_tensor(value: object, what: str) -> EquimetricError:
    """The error for a list or an array where a tensor is wanted."""
    return EquimetricError(f"{what} must be a tensor, got {type(value).__name__}; convert with torch.as_tensor({what})")
