"""The exceptions whose message a user reads, and the hint for a misspelt name."""

from collections.abc import Iterable, Set
from difflib import get_close_matches

from equimetric.other_names import KnownAs, spellings, translate_name

__all__ = [
    "DamagedFileError",
    "EquimetricError",
    "EquimetricWarning",
    "StorageError",
    "did_you_mean",
    "not_a_tensor",
    "quote",
    "unknown_name",
    "unnamed_option",
]

MAX_NAMES = 5
"""Number of names that a message lists."""

MIN_SIMILARITY = 0.4
"""Similarity from which a name is listed before the first ones; from 0.6 on it is the suggestion."""

MAX_QUOTE_LENGTH = 200


class EquimetricError(ValueError):
    """Something the user gave cannot be used; the message says what is wrong and what to do.

    The command line prints the message alone, without a traceback, and exits with code 2.
    """


class StorageError(EquimetricError):
    """A file cannot be written: for example, the disk is full or a folder is read-only.

    It says nothing about the run that was writing, so it is never stored as a run's result.
    """


class EquimetricWarning(UserWarning):
    """Something a user should know and may change; it stops nothing. The command line prints the message."""


class DamagedFileError(EquimetricError):
    """A stored file is not what was written: `problem` names the file, the message also says what to do."""

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem}; {advice}" if advice else problem)
        self.problem = problem


def quote(value: object) -> str:
    """repr(value) for an error message, without the middle of a long one."""
    if isinstance(value, int) and abs(value) >= 10**MAX_QUOTE_LENGTH:
        return f"a number of more than {MAX_QUOTE_LENGTH} digits"
    text = repr(value)
    if len(text) <= MAX_QUOTE_LENGTH:
        return text
    end = MAX_QUOTE_LENGTH // 2 - 1
    return f"{text[:end]} … {text[-end:]}"


def did_you_mean(
    name: str, valid: Iterable[str], known_as: KnownAs | None = None, *, likely: Iterable[str] = ()
) -> str:
    """The end of an error message: the name used here, the nearest valid name, or five of them.

    `known_as` has the names that valid ones have in other libraries and papers. `likely` names come first among five.
    """
    valid = sorted(valid) if isinstance(valid, Set) else list(dict.fromkeys(valid))
    matches = translate_name(name, valid, known_as)
    if matches and not any(spellings(match)[0] in spellings(name) for match in matches):
        return f"it is called {' or '.join(map(repr, matches[:MAX_NAMES]))} here"
    nearest = matches or get_close_matches(name, valid, n=1)
    if nearest:
        return f"did you mean {nearest[0]!r}?"
    if len(valid) <= MAX_NAMES:
        return f"valid names: {', '.join(valid)}" if valid else "there are none to choose from"
    suggestions = dict.fromkeys([*likely, *get_close_matches(name, valid, MAX_NAMES, MIN_SIMILARITY), *valid])
    return f"{len(valid)} names are valid, e.g. {', '.join(list(suggestions)[:MAX_NAMES])}"


def unknown_name(kind: str, name: str, valid: Iterable[str], known_as: KnownAs | None = None) -> EquimetricError:
    """The error for a name that is not known, with the one that is meant or the nearest."""
    return EquimetricError(f"unknown {kind} {quote(name)}; {did_you_mean(name, valid, known_as)}")


def not_a_tensor(value: object, name: str) -> EquimetricError:
    """The error for a list or an array where a tensor is required."""
    return EquimetricError(f"{name} must be a tensor, got {type(value).__name__}; convert with torch.as_tensor({name})")


def unnamed_option(function: str, value: object, example: str) -> EquimetricError:
    """The error for an option that is given by position."""
    return EquimetricError(f"{function} takes options by name, got {quote(value)} without one; write {example}")
