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
]

NAMES_LISTED = 5
"""Names that a message lists."""

MIN_SIMILARITY = 0.4
"""Likeness from which on a name is listed before the first ones; from 0.6 on it is the suggestion."""

MAX_SHOWN_LENGTH = 200


class EquimetricError(ValueError):
    """Something the user gave cannot be used; the message says what is wrong and what to do.

    The command line prints the message alone, without a traceback, and exits with code 2.
    """


class StorageError(EquimetricError):
    """A file cannot be written: the disk is full, say, or a folder read-only.

    It says nothing about the run that was writing, so it is never stored as a run's result.
    """


class EquimetricWarning(UserWarning):
    """Something a user should know and may change; nothing is stopped by it. The command line prints the message."""


class DamagedFileError(EquimetricError):
    """A stored file is not what was written: `problem` names the file, and the message the way out, too."""

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem}; {advice}" if advice else problem)
        self.problem = problem


def quote(value: object) -> str:
    """repr(value) for an error message, without the middle of a long one."""
    if isinstance(value, int) and abs(value) >= 10**MAX_SHOWN_LENGTH:
        return f"a number of more than {MAX_SHOWN_LENGTH} digits"
    text = repr(value)
    if len(text) <= MAX_SHOWN_LENGTH:
        return text
    end = MAX_SHOWN_LENGTH // 2 - 1
    return f"{text[:end]} … {text[-end:]}"


def did_you_mean(name: str, valid: Iterable[str], known_as: KnownAs | None = None) -> str:
    """The end of an error message: what the name is called here, the nearest valid name, or five of them.

    `known_as` has the names that valid ones have in other libraries and papers.
    """
    valid = sorted(valid) if isinstance(valid, Set) else list(dict.fromkeys(valid))
    ours = translate_name(name, valid, known_as)
    if ours and not any(spellings(one)[0] in spellings(name) for one in ours):
        return f"it is called {' or '.join(map(repr, ours[:NAMES_LISTED]))} here"
    near = ours or get_close_matches(name, valid, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    if len(valid) <= NAMES_LISTED:
        return f"valid names: {', '.join(valid)}" if valid else "there are none to choose from"
    some = dict.fromkeys([*get_close_matches(name, valid, NAMES_LISTED, MIN_SIMILARITY), *valid])
    return f"{len(valid)} names are valid, e.g. {', '.join(list(some)[:NAMES_LISTED])}"


def unknown_name(kind: str, name: str, valid: Iterable[str], known_as: KnownAs | None = None) -> EquimetricError:
    """The error for a name that is not known, with the one that is meant or the nearest."""
    return EquimetricError(f"unknown {kind} {quote(name)}; {did_you_mean(name, valid, known_as)}")


def not_a_tensor(value: object, what: str) -> EquimetricError:
    """The error for a list or an array where a tensor is wanted."""
    return EquimetricError(f"{what} must be a tensor, got {type(value).__name__}; convert with torch.as_tensor({what})")
