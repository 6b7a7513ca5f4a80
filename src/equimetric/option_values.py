"""The values that an option takes: read from its annotation and checked before a component is built.

With `temperature: PositiveFloat = 0.07` in the signature of a loss, 0, "0.07" and NaN raise an error that names the
option.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isfinite
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from equimetric.errors import EquimetricError, did_you_mean, quote

__all__ = [
    "Acute",
    "HalfTurn",
    "HingeReduction",
    "NonNegativeFloat",
    "NonNegativeInt",
    "PositiveFloat",
    "PositiveInt",
    "Range",
    "RowReduction",
    "Smoothing",
    "TermReduction",
    "UnitFraction",
    "check_options",
    "expected_values",
    "invalid_option",
]


@dataclass(frozen=True)
class Range:
    """The numbers between two bounds; the upper one is included, the lower one by default."""

    low: float
    high: float = inf
    without_low: bool = False

    def holds(self, number: Any) -> bool:
        """Whether a number lies between the bounds."""
        return bool((self.low < number if self.without_low else self.low <= number) and number <= self.high)

    def __str__(self) -> str:
        above = f"above {self.low:g}" if self.without_low else f"of {self.low:g} or more"
        if self.high == inf:
            return above
        return f"{above} and up to {self.high:g}" if self.without_low else f"between {self.low:g} and {self.high:g}"


PositiveFloat = Annotated[float, Range(0.0, without_low=True)]
NonNegativeFloat = Annotated[float, Range(0.0)]
UnitFraction = Annotated[float, Range(0.0, 1.0)]
PositiveInt = Annotated[int, Range(1)]
NonNegativeInt = Annotated[int, Range(0)]
Acute = Annotated[float, Range(0.0, 89.0)]
"""An angle in degrees, with a tangent of moderate size."""
HalfTurn = Annotated[float, Range(0.0, 180.0)]
"""An angle in degrees."""
RowReduction: TypeAlias = Literal["mean", "valid", "batch", "sum", "none"]
"""Of the losses of queries; see `ops.reduce_rows`."""
TermReduction: TypeAlias = Literal["nonzero", "mean", "sum", "batch", "valid", "none"]
"""Of the terms of pairs or triples; see `ops.reduce`."""

HingeReduction: TypeAlias = Literal["nonzero", "mean", "sum", "batch", "valid", "anchor", "none"]
"""Of hinges on pairs; see `ops.sum_hinges`."""
Smoothing: TypeAlias = Literal["others", "uniform"]
"""Which classes share what label smoothing takes from the right one; see `ops.cross_entropy`."""

KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    float: ("a number", lambda value: not isinstance(value, bool) and isinstance(value, Real) and isfinite(value)),
    int: ("a whole number", lambda value: not isinstance(value, bool) and isinstance(value, Integral)),
    bool: ("True or False", lambda value: isinstance(value, bool)),
    str: ("a name", lambda value: isinstance(value, str)),
    NoneType: ("None", lambda value: value is None),
    Callable: ("a function", callable),
    torch.Generator: ("a torch.Generator", lambda value: isinstance(value, torch.Generator)),
}
"""Checked annotation → its meaning in words, and the test of a value."""


def check_options(owner: str, definition: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with numpy's numbers and fractions as Python's; a value that its annotation forbids is an error.

    Annotations are read from the signature of a function or of a class's constructor.
    """
    annotations = read_annotations(definition)
    checked = {name: to_python(value) for name, value in options.items()}
    for name, value in checked.items():
        expected = describe_mismatch(annotations.get(name), value)
        if expected:
            raise invalid_option(owner, name, value, expected)
    return checked


def expected_values(definition: Callable[..., Any], name: str, value: Any) -> list[str]:
    """The values that an option allows, in words, where this one is not allowed; empty where it is."""
    return describe_mismatch(read_annotations(definition).get(name), to_python(value))


def read_annotations(definition: Callable[..., Any]) -> dict[str, Any]:
    """The types in the signature of a function or of a class's constructor."""
    signature = definition.__init__ if isinstance(definition, type) else definition  # type: ignore[misc]
    try:
        return get_type_hints(signature, include_extras=True)
    except (NameError, TypeError):
        # A user's loss may be annotated with names that only a type checker knows.
        return {}


def invalid_option(owner: str, name: str, value: Any, expected: list[str]) -> EquimetricError:
    """The error for a value that is not allowed; of a word, with the one that is meant, where there is one."""
    words = [one.strip("'") for one in expected if one.startswith("'")]
    meant = did_you_mean(value, words) if words and isinstance(value, str) else ""
    advice = f"; {meant}" if meant.startswith(("it is called", "did you mean")) else ""
    return EquimetricError(f"{owner}: {name} must be {list_choices(expected)}, got {quote(value)}{advice}")


def list_choices(words: Iterable[str]) -> str:
    """`a, b or c`."""
    *others, last = dict.fromkeys(words)
    return f"{', '.join(others)} or {last}" if others else last


def to_python(value: Any) -> Any:
    """A scalar of numpy or a fraction as Python's number; anything else, tensors too, unchanged."""
    if isinstance(value, np.ndarray | np.generic) and not value.ndim:
        return value.item()
    return float(value) if isinstance(value, Fraction) else value


def describe_mismatch(annotation: Any, value: Any) -> list[str]:
    """The values that an annotation allows, in words, where this one is not allowed; empty where it is."""
    if isinstance(value, Tensor) and not value.ndim:
        value = value.item()
    if get_origin(annotation) in (Union, UnionType):
        mismatches = [describe_mismatch(member, value) for member in get_args(annotation)]
        return [] if not all(mismatches) else [description for member in mismatches for description in member]
    if get_origin(annotation) is Literal:
        allowed = get_args(annotation)
        return [] if isinstance(value, str | int) and value in allowed else [repr(choice) for choice in allowed]
    base, *metadata = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    base = get_origin(base) or base
    if base not in KINDS:
        return []
    description, accepts = KINDS[base]
    ranges = [limit for limit in metadata if isinstance(limit, Range)]
    if accepts(value) and all(limit.holds(value) for limit in ranges):
        return []
    return [" ".join([description, *map(str, ranges)])]
