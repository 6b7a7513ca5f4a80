"""`equimetric datasets`: what there is, and the group of commands that look into a data set."""

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.table import Table

from equimetric.cli.console import console
from equimetric.configuration import load_config, parse_overrides, read_toml
from equimetric.data import TRANSFORMS, dataset_descriptions
from equimetric.errors import EquimetricError
from equimetric.runs.configuration import DataConfig

__all__ = ["SOURCE_HELP", "data_named", "datasets"]

SOURCE_HELP = (
    "A data set by its name, its options behind it; a folder of your own, with one folder per class; "
    "or a configuration (.toml), of which the table data is meant."
)


def datasets(context: typer.Context) -> None:
    """List the data sets, with their options, and the transforms that can be named in a configuration.

    In a configuration: data = { name = "cub", options = { root = "CUB_200_2011" }, transform = "reality_check" }

    Before a long training: equimetric datasets check cub --root CUB_200_2011
    """
    if context.invoked_subcommand is not None:
        return
    table = Table("data set", "what it is", "options")
    for description in dataset_descriptions():
        required = [f"{name}=…" for name in description.required]
        options = ", ".join(required + [f"{name}={value}" for name, value in description.options.items()])
        table.add_row(description.name, description.description, options)
    console.print(table)
    transforms = Table("transform", "what it does")
    for transform in TRANSFORMS.values():
        transforms.add_row(transform.name, transform.description)
    console.print(transforms)


def data_named(source: str, arguments: Sequence[str]) -> DataConfig:
    """What a configuration says of its data, a data set by name, or a folder; `--key value` are options of it."""
    if source.endswith(".toml"):
        values = read_toml_data(source)
    elif Path(source).is_dir() and all(source != known.name for known in dataset_descriptions()):
        values = {"name": "folder", "options": {"root": source}}
    else:
        values = {"name": source}
    return load_config(values, DataConfig, {f"options.{key}": v for key, v in parse_overrides(arguments).items()})


def read_toml_data(file: str) -> dict[str, object]:
    """The table [data] of a configuration."""
    data = read_toml(Path(file)).get("data", {})
    if not isinstance(data, dict):
        raise EquimetricError(f"[data] of {file!r} is not a table; write data.name = …")
    return data
