"""`equimetric datasets`."""

from rich.table import Table

from equimetric.cli.console import console
from equimetric.data import TRANSFORMS, dataset_descriptions

__all__ = ["datasets"]


def datasets() -> None:
    """List the data sets, with their options, and the transforms that can be named in a configuration."""
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
