"""`equimetric datasets check`."""

import json
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from equimetric.cli.command import LOOK_UP, command
from equimetric.cli.console import show, show_error
from equimetric.cli.datasets import DATA_SOURCE, parse_source
from equimetric.errors import EquimetricError
from equimetric.escaping import name_text

if TYPE_CHECKING:
    from equimetric.data import Dataset, NearDuplicate, Split
    from equimetric.runs.configuration import DataConfig

__all__ = ["check_command"]

EXIT_FAULTS = 1
"""Exit code where a problem was found; 0 is a clean data set, 2 a user's mistake."""


@command(
    "datasets check",
    panel=LOOK_UP,
    order=1,
    overrides=True,
    examples="""
    equimetric datasets check my_images --channels 1
    equimetric datasets check cub --root CUB_200_2011
    equimetric datasets check run.toml
    """,
)
def check_command(
    context: typer.Context,
    source: Annotated[str, DATA_SOURCE],
    most_bits: Annotated[
        int, typer.Option("--most-bits", help="Near-duplicates differ in at most this many bits of a 64-bit hash.")
    ] = 6,
    most_difference: Annotated[
        float, typer.Option("--most-difference", help="Their grey thumbnails differ by at most this mean, of 255.")
    ] = 8.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: damaged, skipped, small_classes, near_duplicates.")
    ] = False,
) -> None:
    """Find damaged image files, and images that occur in two parts of the split.

    A test set must not share images with the training set. Rescaled, recompressed and slightly brightened copies are
    found, mirrored and cropped ones are not. Each problem is one line with the paths; no file is changed. Files of
    formats that are not read, such as HEIC, are named too.

    Exit codes: 0 no problem, 1 damaged files or near-duplicates, 2 the data set cannot be loaded.
    """
    from equimetric.data import near_duplicates

    dataset, split = load_readable(parse_source(source, context.args))
    duplicates = near_duplicates(dataset, split, most_bits=most_bits, most_difference=most_difference)
    if as_json:
        records = [
            asdict(pair) | dict(zip(("first", "second"), pair.names(dataset), strict=True)) for pair in duplicates
        ]
        typer.echo(json.dumps({**describe_unused(dataset), "near_duplicates": records}))
    else:
        show_problems(dataset, split, duplicates)
    if duplicates or dataset.unreadable:
        raise typer.Exit(EXIT_FAULTS)


def load_readable(config: "DataConfig") -> "tuple[Dataset, Split]":
    """The data set without its damaged files, which it lists, and its split."""
    from equimetric.data import dataset_descriptions
    from equimetric.runs.data import load_split

    options = next((dataset.options for dataset in dataset_descriptions() if dataset.name == config.name), {})
    if "damaged" in options:
        config = config.model_copy(update={"options": {**config.options, "damaged": "skip"}})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return load_split(config)
        except EquimetricError:
            # Too little may be left without the damaged files; then they are the reason and come first.
            for warning in caught:
                show_error(str(warning.message))
            raise


def describe_unused(dataset: "Dataset") -> dict[str, object]:
    """Files and classes that are not used."""
    return {
        "damaged": dataset.unreadable,
        "skipped": dataset.skipped,
        "small_classes": dict(dataset.small_classes),
    }


def show_problems(dataset: "Dataset", split: "Split", duplicates: "list[NearDuplicate]") -> None:
    """A line for each problem, for what is left out, and a summary."""
    from equimetric.data import list_first

    lines = [f"damaged: {reason}" for reason in dataset.unreadable]
    if dataset.skipped:
        lines.append(f"skipped: {len(dataset.skipped):,} files that are not read: {list_first(dataset.skipped)}")
    if dataset.small_classes:
        small = [f"{name} ({count})" for name, count in dataset.small_classes.items()]
        lines.append(f"left out: {len(small):,} classes with too few images: {list_first(small)}")
    lines += [pair.describe(dataset) for pair in duplicates]
    sizes = ", ".join(f"{len(indices):,} {part}" for part, indices in split.parts().items())
    lines.append(
        f"{dataset.name}: {len(dataset):,} images ({sizes}), {len(dataset.unreadable)} damaged files, "
        f"{len(duplicates)} near-duplicates across parts"
    )
    show("\n".join(map(name_text, lines)))
