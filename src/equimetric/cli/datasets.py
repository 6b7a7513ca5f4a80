"""`equimetric datasets`: lists the data sets; the commands of this group take one of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from equimetric.cli.catalogue import complete, list_datasets, list_transforms
from equimetric.cli.command import LOOK_UP, command
from equimetric.cli.console import build_table, console
from equimetric.errors import EquimetricError
from equimetric.files import IS_FOLDER, unreadable_reason

if TYPE_CHECKING:
    from equimetric.runs.configuration import DataConfig

__all__ = ["DATA_SOURCE", "datasets_command", "parse_source"]

DATA_SOURCE = typer.Argument(
    help="The name of a data set, with its options after it as --key value; a folder with one folder per class; or a "
    "configuration (.toml), whose data table is used.",
    autocompletion=complete(list_datasets),
)
"""The argument that `datasets check` and `datasets shift` share."""


@command(
    "datasets",
    panel=LOOK_UP,
    order=2,
    examples="""
    equimetric datasets
    equimetric datasets check cub --root CUB_200_2011

    In a configuration:
    data.name = "cub"
    data.options = { root = "CUB_200_2011" }
    data.transform = "reality_check"
    """,
)
def datasets_command(context: typer.Context) -> None:
    """List the data sets with their options, and the transforms; check or shift one of them."""
    if context.invoked_subcommand is not None:
        return
    rows = []
    for dataset in list_datasets().values():
        required = [f"{name}=…" for name in dataset.required]
        options = ", ".join(required + [f"{name}={value}" for name, value in dataset.options.items()])
        rows.append((dataset.name, dataset.description, options))
    console.print(build_table(("data set", "description", "options"), rows))
    console.print(build_table(("transform", "description"), list_transforms().items()))


def parse_source(source: str, arguments: Sequence[str]) -> "DataConfig":
    """The data configuration that a source and the `--key value` after it describe."""
    from equimetric.configuration import load_config, parse_overrides
    from equimetric.data import dataset_descriptions
    from equimetric.runs.configuration import DataConfig

    if source.endswith(".toml"):
        values = read_data_table(source)
    elif unreadable_reason(Path(source)) == IS_FOLDER and all(
        source != dataset.name for dataset in dataset_descriptions()
    ):
        values = {"name": "folder", "options": {"root": source}}
    else:
        values = {"name": source}
    return load_config(values, DataConfig, {f"options.{key}": v for key, v in parse_overrides(arguments).items()})


def read_data_table(file: str) -> dict[str, object]:
    """The table [data] of a configuration."""
    from equimetric.configuration import read_toml

    data = read_toml(Path(file)).get("data", {})
    if not isinstance(data, dict):
        raise EquimetricError(f"[data] of {file!r} is not a table; write data.name = …")
    return data
