"""`equimetric datasets`."""

from rich.table import Table

from equimetric.cli.console import console
from equimetric.data import dataset_descriptions

__all__ = ["datasets"]


def datasets() -> None:
    """List the data sets that can be named in a configuration, with their options."""
    table = Table("data set", "what it is", "options")
    for description in dataset_descriptions():
        required = [f"{name}=…" for name in description.required]
        options = ", ".join(required + [f"{name}={value}" for name, value in description.options.items()])
        table.add_row(description.name, description.description, options)
    console.print(table)
