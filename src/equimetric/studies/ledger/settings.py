"""Settings of methods side by side: what is equal, what differs, and whether the comparison declares it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from equimetric.studies.ledger.factors import Factor, is_declared
from equimetric.studies.ledger.record import LedgerEntry

__all__ = [
    "FLOAT_BITS",
    "NOT_SET",
    "Settings",
    "compare_dimensions",
    "compare_factor",
    "describe_groups",
    "join_names",
]

Settings: TypeAlias = Mapping[str, Mapping[str, str | None]]
"""Method → key → value as text; None where it is not stated. A key that a method lacks does not apply to it."""

FLOAT_BITS = 32
"""Bits per dimension of an embedding that is not binary."""

NOT_SET = "not set"
"""A key of a configuration without a value."""

TUNED = "tuned for each method by the same budget"
NAMES_SHOWN, VALUES_SHOWN = 3, 6


def compare_factor(
    factor: Factor,
    keys: Sequence[str],
    settings: Settings,
    varies: Sequence[str],
    *,
    optional: Sequence[str] = (),
    tuned: Collection[str] = (),
) -> LedgerEntry:
    """Compare the settings of one factor key by key; an optional key that no method states is left out.

    Of a key that is `tuned` for each method, the shared value is only where the search would start.
    """
    columns = {
        key: {name: values[key] for name, values in settings.items() if key in values} for key in (*keys, *optional)
    }
    columns = {key: column for key, column in columns.items() if key in keys or {*column.values()} != {None}}
    different = [key for key, column in columns.items() if len({*column.values()} - {None}) > 1]
    undeclared = [key for key in different if not is_declared(key, factor, varies)]
    gaps = [key for key, column in columns.items() if None in column.values()]
    if not different and not gaps:
        return LedgerEntry(factor=factor.name, status="equal", finding=describe_shared(factor, columns, tuned))
    reported = [key for key in columns if key in undeclared or key in gaps] or different
    return LedgerEntry(
        factor=factor.name,
        status="differs" if undeclared else "not stated" if gaps else "declared",
        finding="; ".join(f"{key} is {describe_groups(columns[key])}" for key in reported),
        methods=tuple(name for name in settings if any(name in odd_methods(columns[key]) for key in reported)),
    )


def compare_dimensions(
    factor: Factor, key: str, dims: Mapping[str, tuple[int, int] | None], varies: Sequence[str]
) -> LedgerEntry:
    """Compare (dimension, bits of each dimension): embeddings of as many bits are equal, whatever their dimension.

    2,048 signs are 2,048 bits, and so are 64 numbers of 32 bits.
    """
    sizes = sorted({size for size in dims.values() if size is not None})
    names: dict[int, str] = {}
    for dim, bits in sizes:
        names[dim * bits] = " or ".join(filter(None, (names.get(dim * bits), describe_dimension(dim, bits))))
    names = {total: text + (", equal bits" if " or " in text else "") for total, text in names.items()}
    settings = {name: {key: names[size[0] * size[1]] if size else None} for name, size in dims.items()}
    return compare_factor(factor, [key], settings, varies)


def describe_dimension(dim: int, bits: int) -> str:
    """'64', '2,048 signs' or '128 of 16 bits'."""
    return {FLOAT_BITS: f"{dim:,}", 1: f"{dim:,} signs"}.get(bits, f"{dim:,} of {bits} bits")


def describe_shared(factor: Factor, stated: Mapping[str, Mapping[str, str | None]], tuned: Collection[str] = ()) -> str:
    """The values that all methods share, of the keys that say enough, and which keys are tuned for each method."""
    chosen = [key for key in stated if key in factor.summary_keys or key in tuned] or list(stated)
    values = [
        (key.rpartition(".")[2], TUNED if key in tuned else next(iter(stated[key].values()), NOT_SET)) for key in chosen
    ]
    return ", ".join(f"{key} {value}" for key, value in values if value != NOT_SET) or "the same for all"


def describe_groups(values: Mapping[str, str | None]) -> str:
    """'64 for contrastive, triplet; 128 for margin': the most common value first."""
    groups = group_by_value(values)
    if len(groups) == 1:
        return groups[0][0] or "not stated"
    displayed = [f"{value or 'not stated'} for {join_names(names)}" for value, names in groups[:VALUES_SHOWN]]
    num_hidden = len(groups) - VALUES_SHOWN
    return "; ".join([*displayed, *([f"{num_hidden} more values"] if num_hidden > 0 else [])])


def join_names(names: Sequence[str]) -> str:
    """'contrastive, triplet, margin and 3 others'."""
    if len(names) <= NAMES_SHOWN + 1:
        return ", ".join(names)
    return f"{', '.join(names[:NAMES_SHOWN])} and {len(names) - NAMES_SHOWN} others"


def group_by_value(values: Mapping[str, str | None]) -> list[tuple[str | None, list[str]]]:
    """Value → its methods, the most common value first, then in order of appearance; what is not stated last."""
    groups: dict[str | None, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(name)
    return sorted(groups.items(), key=lambda item: (item[0] is None, -len(item[1])))


def odd_methods(values: Mapping[str, str | None]) -> list[str]:
    """The methods without the most common value; all of them where no value is more common than the next."""
    groups = group_by_value(values)
    if groups[0][0] is None:
        return list(values)
    tie = len(groups) > 1 and groups[1][0] is not None and len(groups[1][1]) == len(groups[0][1])
    return [name for _, names in groups[0 if tie else 1 :] for name in names]
