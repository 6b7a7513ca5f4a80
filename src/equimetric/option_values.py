"""What values an option takes: read from its annotation, and checked before a component is built with it.

`temperature: Positive = 0.07` in the signature of a loss is all that it takes to refuse 0, "0.07" and NaN by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isfinite
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from equimetric.errors import EquimetricError

__all__ = ["Acute", "Count", "HalfTurn", "NotNegative", "Number", "Positive", "Range", "Share", "checked_options"]


@dataclass(frozen=True)
class Range:
    """The numbers between two bounds, the lower one included or not."""

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


Positive = Annotated[float, Range(0.0, without_low=True)]
NotNegative = Annotated[float, Range(0.0)]
Share = Annotated[float, Range(0.0, 1.0)]
Count = Annotated[int, Range(1)]
Number = Annotated[int, Range(0)]
Acute = Annotated[float, Range(0.0, 89.0)]
"""An angle in degrees whose tangent is not all too large."""
HalfTurn = Annotated[float, Range(0.0, 180.0)]
"""An angle in degrees."""

KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    float: ("a number", lambda value: not isinstance(value, bool) and isinstance(value, Real) and isfinite(value)),
    int: ("a whole number", lambda value: not isinstance(value, bool) and isinstance(value, Integral)),
    bool: ("True or False", lambda value: isinstance(value, bool)),
    str: ("a name", lambda value: isinstance(value, str)),
    NoneType: ("None", lambda value: value is None),
    Callable: ("a function", callable),
    torch.Generator: ("a torch.Generator", lambda value: isinstance(value, torch.Generator)),
}
"""What the annotations that are checked demand, in words and as a test."""


def checked_options(what: str, definition: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, numbers of other libraries as Python's own; values that the annotations do not allow are refused.

    The annotations are those in the signature of a function or of a class's constructor.
    """
    signature = definition.__init__ if isinstance(definition, type) else definition  # type: ignore[misc]
    try:
        annotations = get_type_hints(signature, include_extras=True)
    except (NameError, TypeError):
        # A loss of the user's own may be annotated with names that are known to a type checker only.
        annotations = {}
    checked = {name: plain(value) for name, value in options.items()}
    for name, value in checked.items():
        wanted = demands(annotations.get(name), value)
        if wanted:
            raise EquimetricError(f"{what}: {name} must be {' or '.join(wanted)}, got {value!r}")
    return checked


def plain(value: Any) -> Any:
    """A number of numpy, or a fraction, as Python's own; anything else, tensors too, as it is."""
    if isinstance(value, np.ndarray | np.generic) and not value.ndim:
        return value.item()
    return float(value) if isinstance(value, Fraction) else value


def demands(annotation: Any, value: Any) -> list[str]:
    """What an annotation demands that a value is not, in words; nothing where the value will do."""
    if isinstance(value, Tensor) and not value.ndim:
        value = value.item()
    if get_origin(annotation) in (Union, UnionType):
        found = [demands(member, value) for member in get_args(annotation)]
        return [] if not all(found) else [words for member in found for words in member]
    base, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    base = get_origin(base) or base
    if base not in KINDS:
        return []
    words, fits = KINDS[base]
    ranges = [mark for mark in marks if isinstance(mark, Range)]
    if fits(value) and all(mark.holds(value) for mark in ranges):
        return []
    return [" ".join([words, *map(str, ranges)])]
