"""A protocol file: what it says, what it inherits, and how a study takes its values from it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field

from equimetric.configuration import Options, Strict, load_config
from equimetric.dotted import flatten
from equimetric.errors import EquimetricError, unknown_name

__all__ = ["Protocol", "apply_protocol", "find_protocol", "list_protocols"]

OWN_KEYS = ("name", "title", "protocol", "workers", "sweep", "waivers", "logging", "methods", "arms")
"""Keys of a study that never count as a departure from a protocol."""

NOT_MERGED = ("methods", "arms", "seeds")
"""Keys of a study that replace the protocol's whole table."""


class Protocol(Strict):
    """A protocol: its name, where it comes from, and the values that a study takes from it."""

    protocol: str = Field(description="name, as a study gives it")
    version: int = Field(ge=1, description="raised whenever the same study would get other numbers")
    title: str = Field(description="one line")
    text: str = Field("", description="what it is, what is tuned and measured, and how it departs from its source")
    paper: str = Field("", description="authors, title, year")
    extends: str | None = Field(None, description="a protocol, by name or file, that this one changes in its keys")
    study: Options = Field(default_factory=dict, description="values of a study")
    datasets: dict[str, Options] = Field(
        default_factory=dict, description="name of a data set → values of a study that differ for it"
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
    if protocol.extends is None:
        return protocol
    from_file = protocol.extends.endswith(".toml")
    source = read_protocol(file.parent / protocol.extends if from_file else Path(protocol.extends), (*visited, file))
    names = dict.fromkeys([*source.datasets, *protocol.datasets])
    return protocol.model_copy(
        update={
            "study": merge(source.study, protocol.study),
            "datasets": {name: merge(source.datasets.get(name, {}), protocol.datasets.get(name, {})) for name in names},
            "extends": None,
        }
    )


def apply_protocol(study: Mapping[str, Any], protocol: Protocol) -> dict[str, Any]:
    """The values of a study with those of its protocol where it has none of its own, and where it departs from it.

    Of the protocol's methods a study takes those that it names, with what the protocol says of them, or all.
    """
    data = study.get("data", {})
    name = data.get("name", "") if isinstance(data, Mapping) else ""
    defaults = merge(protocol.study, protocol.datasets.get(str(name), {}))
    values = merge(defaults, study)
    methods, known_methods = study.get("methods"), defaults.get("methods", {})
    if isinstance(methods, Mapping):
        values["methods"] = {
            row: merge(known_methods.get(row, {}), table) if isinstance(table, Mapping) else table
            for row, table in methods.items()
        }
    values["protocol"] = protocol.protocol
    values["protocol_version"] = protocol.version
    values["departures"] = find_departures(defaults, study)
    return values


def find_departures(protocol: Mapping[str, Any], study: Mapping[str, Any]) -> dict[str, str]:
    """Dotted key → 'value of the protocol → value of the study', where both give one and they differ."""
    defaults = dict(flatten(protocol))
    return {
        key: f"{defaults[key]} → {value}"
        for key, value in flatten(study)
        if key in defaults and defaults[key] != value and key.partition(".")[0] not in OWN_KEYS
    }


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two tables key by key; `above` wins."""
    merged = {key: dict(value) if isinstance(value, Mapping) else value for key, value in below.items()}
    for key, value in above.items():
        both_tables = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both_tables and key not in NOT_MERGED else value
    return merged
