"""Nested tables by dotted keys: {"optimizer": {"lr": 1e-6}} and 'optimizer.lr', values as text; without torch."""

from collections.abc import Iterator, Mapping
from typing import Any

from equimetric.errors import EquimetricError

__all__ = ["flatten", "format_setting", "set_dotted"]


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """('optimizer.lr', 1e-6), … of nested tables."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def format_setting(value: object, digits: int = 6) -> str:
    """A value as a file may have it; real numbers with at most `digits` significant digits."""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def set_dotted(values: dict[str, Any], key: str, value: Any) -> None:
    """values["optimizer"]["lr"] = value for the key 'optimizer.lr'."""
    *tables, last = key.split(".")
    for table in tables:
        inner = values.setdefault(table, {})
        if not isinstance(inner, dict):
            raise EquimetricError(f"{key!r} cannot be set: {table!r} is a value, not a table")
        values = inner
    values[last] = value
