"""The one exception for mistakes in what a user gave, the one warning, and the hint for a misspelt name."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["EquimetricError", "EquimetricWarning", "did_you_mean", "no_tensor", "shown", "unknown_name"]

LONGEST_SHOWN = 200


class EquimetricError(ValueError):
    """Something the user gave cannot be used; the message says what is wrong and what to do.

    The command line prints the message alone, without a traceback, and exits with code 2.
    """


class EquimetricWarning(UserWarning):
    """Something a user should know and may change; nothing is stopped by it. The command line prints the message."""


def shown(value: object) -> str:
    """repr(value) for an error message, without the middle of a long one."""
    if isinstance(value, int) and abs(value) >= 10**LONGEST_SHOWN:
        return f"a number of more than {LONGEST_SHOWN} digits"
    text = repr(value)
    if len(text) <= LONGEST_SHOWN:
        return text
    end = LONGEST_SHOWN // 2 - 1
    return f"{text[:end]} … {text[-end:]}"


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """The end of an error message: the nearest valid name, or all of them where none is near."""
    valid = sorted(set(valid))
    near = get_close_matches(name, valid, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"valid names: {', '.join(valid)}" if valid else "there are none to choose from"


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> EquimetricError:
    """The error for a name that is not known, with the nearest one that is."""
    return EquimetricError(f"unknown {kind} {shown(name)}; {did_you_mean(name, valid)}")


def no_tensor(value: object, what: str) -> EquimetricError:
    """The error for a list or an array where a tensor is wanted."""
    return EquimetricError(f"{what} must be a tensor, got {type(value).__name__}; convert with torch.as_tensor({what})")
