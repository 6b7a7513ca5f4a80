"""A protocol file: what it says, what it inherits, and how a study takes its values from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field

from equimetric.configuration import Options, Strict, load_config
from equimetric.dotted import flatten, set_dotted
from equimetric.errors import EquimetricError, unknown_name
from equimetric.registry import read_declarations

__all__ = ["Protocol", "apply_protocol", "find_protocol", "list_protocols"]

OWN_KEYS = ("name", "title", "protocol", "workers", "sweep", "waivers", "logging", "methods", "arms")
"""Keys of a study that never count as a departure from a protocol."""

NOT_MERGED = ("methods", "arms", "seeds")
"""Keys of a study that replace the protocol's whole table."""

NOTHING = "none"
"""What a study sets a key to where it goes without."""

REQUIRED = "required → "
"""How the departure from a required key begins."""


class Protocol(Strict):
    """A protocol: its name, where it comes from, and the values that a study takes from it."""

    protocol: str = Field(description="name, as a study gives it")
    version: int = Field(ge=1, description="raised whenever the same study would get other numbers")
    title: str = Field(description="one line")
    text: str = Field("", description="what it is, what is tuned and measured, and how it departs from its source")
    paper: str = Field("", description="authors, title, year")
    extends: str | None = Field(None, description="a protocol, by name or file, that this one changes in its keys")
    requires: dict[str, str] = Field(
        default_factory=dict, description="key that a study must give → what to set it to, as the end of a sentence"
    )
    study: Options = Field(default_factory=dict, description="values of a study")
    datasets: dict[str, Options] = Field(
        default_factory=dict,
        description="registered name of a data set → values of a study that differ for it, key by key, methods as well",
    )
    left_out: dict[str, list[str]] = Field(
        default_factory=dict, description="registered name of a data set → methods that are left out on it"
    )


def list_protocols() -> dict[str, Protocol]:
    """The protocols of this package, by name."""
    folder = files("equimetric.protocols")
    names = sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
    return {name: find_protocol(name) for name in names}


def find_protocol(name: str | Path) -> Protocol:
    """A protocol by its name, or from a file of the user's own, with everything that it inherits."""
    return read_protocol(Path(name), visited=())


def read_protocol(name: Path, visited: tuple[Path, ...]) -> Protocol:
    """A protocol with everything that it inherits; `visited` are the files that extend it."""
    file = name
    if name.suffix != ".toml":
        file = Path(str(files("equimetric.protocols"))) / f"{name}.toml"
        if not file.is_file():
            shipped = [path.stem for path in file.parent.glob("*.toml")]
            raise unknown_name("protocol", str(name), [*shipped, "a file such as my-protocol.toml"])
    if file in visited:
        raise EquimetricError(
            f"protocol {str(name)!r} extends itself by way of {str(visited[-1])!r}; change one of them"
        )
    protocol = load_config(file, Protocol)
    require_data_sets(file, "datasets", protocol.datasets)
    require_data_sets(file, "left_out", protocol.left_out)
    if protocol.extends is None:
        return protocol
    from_file = protocol.extends.endswith(".toml")
    source = read_protocol(file.parent / protocol.extends if from_file else Path(protocol.extends), (*visited, file))
    names = dict.fromkeys([*source.datasets, *protocol.datasets])
    return protocol.model_copy(
        update={
            "study": merge(source.study, protocol.study),
            "datasets": {name: merge(source.datasets.get(name, {}), protocol.datasets.get(name, {})) for name in names},
            "requires": {**source.requires, **protocol.requires},
            "left_out": {**source.left_out, **protocol.left_out},
            "extends": None,
        }
    )


@cache
def declared_data_sets() -> frozenset[str]:
    """The names of data sets as their files declare them, without importing torch."""
    return frozenset(declaration.name for declaration in read_declarations("equimetric.data", "dataset"))


def require_data_sets(file: Path, table: str, names: Iterable[str]) -> None:
    """Raise an error for a table of a protocol with a name that no data set has: it would never apply."""
    for name in names:
        if name not in declared_data_sets():
            from equimetric.data import DATASETS  # with those that a running program has registered

            if name not in DATASETS:
                raise EquimetricError(
                    f"{file}: [{table}] {unknown_name('data set', name, DATASETS, DATASETS.known_as)}"
                )


def apply_protocol(study: Mapping[str, Any], protocol: Protocol, *, data: str = "") -> dict[str, Any]:
    """The values of a study with those of its protocol where it has none of its own, and where it departs from it.

    Of the protocol's methods a study takes those that it names, with what the protocol says of them, or all that are
    not left out on its data set, by default `data`. A key that the protocol requires and neither gives is an error.
    """
    study = restore_nothing(study)
    table = merge(protocol.study, study).get("data", {})
    name = str(table.get("name", data)) if isinstance(table, Mapping) else data
    defaults = merge(protocol.study, protocol.datasets.get(name, {}), replaced=())
    values = merge(defaults, study)
    methods, known_methods = study.get("methods"), defaults.get("methods", {})
    if isinstance(methods, Mapping):
        values["methods"] = {
            row: merge(known_methods.get(row, {}), table) if isinstance(table, Mapping) else table
            for row, table in methods.items()
        }
    elif methods is None:
        for row in protocol.left_out.get(name, ()):
            values.get("methods", {}).pop(row, None)
    values["protocol"] = protocol.protocol
    values["protocol_version"] = protocol.version
    values["departures"] = {**find_departures(defaults, study), **find_given_up(protocol, values)}
    return values


def find_given_up(protocol: Protocol, values: Mapping[str, Any]) -> dict[str, str]:
    """Required keys that a study sets to "none", as departures; a required key that is not given raises an error."""
    given, own = dict(flatten(values)), dict(flatten(protocol.study))
    for key, what in protocol.requires.items():
        if given.get(key) is None:
            raise EquimetricError(f"the protocol {protocol.protocol!r} needs {key}: set it to {what}")
    return {key: REQUIRED + NOTHING for key in protocol.requires if given[key] == NOTHING != own.get(key)}


def restore_nothing(study: Mapping[str, Any]) -> dict[str, Any]:
    """A study with the keys that it sets to "none": a stored one has them among its departures alone."""
    values, departures = merge({}, study), study.get("departures")
    given = dict(flatten(study))
    for key, change in departures.items() if isinstance(departures, Mapping) else ():
        if str(change).endswith(f"→ {NOTHING}") and given.get(key) is None:
            set_dotted(values, key, NOTHING)
    return values


def find_departures(protocol: Mapping[str, Any], study: Mapping[str, Any]) -> dict[str, str]:
    """Dotted key → 'value of the protocol → value of the study', where both give one and they differ."""
    defaults = dict(flatten(protocol))
    return {
        key: f"{defaults[key]} → {value}"
        for key, value in flatten(study)
        if key in defaults and defaults[key] != value and key.partition(".")[0] not in OWN_KEYS
    }


def merge(
    below: Mapping[str, Any], above: Mapping[str, Any], *, replaced: Sequence[str] = NOT_MERGED
) -> dict[str, Any]:
    """Merge two tables key by key; `above` wins, and its tables of these names replace those below."""
    merged = {key: dict(value) if isinstance(value, Mapping) else value for key, value in below.items()}
    for key, value in above.items():
        both_tables = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value, replaced=replaced) if both_tables and key not in replaced else value
    return merged
