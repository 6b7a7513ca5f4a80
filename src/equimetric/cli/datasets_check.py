"""`equimetric datasets check`."""

import json
import warnings
from dataclasses import asdict
from typing import Annotated

import typer

from equimetric.cli.console import console
from equimetric.cli.datasets import SOURCE_HELP, data_named
from equimetric.data import Dataset, NearDuplicate, Split, dataset_descriptions, near_duplicates
from equimetric.errors import EquimetricError
from equimetric.runs.configuration import DataConfig
from equimetric.runs.data import load_split

__all__ = ["check"]

FOUND = 1
"""Exit code where something was found; 0 is a clean data set, 2 a mistake of the user."""


def check(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help=SOURCE_HELP)],
    most_bits: Annotated[
        int, typer.Option("--most-bits", help="Bits of the 64-bit hashes in which two images may differ.")
    ] = 6,
    most_difference: Annotated[
        float, typer.Option("--most-difference", help="Mean difference of their grey thumbnails, of 255.")
    ] = 8.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: damaged, near_duplicates.")] = False,
) -> None:
    """Look for images that cannot be read, and for pictures that occur in two parts of the split.

    A test must not share pictures with training. Rescaled, recompressed and slightly brightened copies are found,
    mirrored and cropped ones are not. Every finding is a line with the paths; nothing is changed.

    Exit code 0: nothing found. 1: damaged files or near-duplicates. 2: the data set cannot be loaded.

    Examples: equimetric datasets check my_images --channels 1

    equimetric datasets check cub --root CUB_200_2011

    equimetric datasets check run.toml
    """
    dataset, split = load_what_can_be_read(data_named(source, context.args))
    alike = near_duplicates(dataset, split, most_bits=most_bits, most_difference=most_difference)
    if as_json:
        named = [{**asdict(pair), **paths(dataset, pair)} for pair in alike]
        typer.echo(json.dumps({"damaged": dataset.unreadable, "near_duplicates": named}))
    else:
        report(dataset, split, alike)
    if alike or dataset.unreadable:
        raise typer.Exit(FOUND)


def load_what_can_be_read(config: DataConfig) -> tuple[Dataset, Split]:
    """The data set without its damaged files, which it lists, and its split."""
    options = next((known.options for known in dataset_descriptions() if known.name == config.name), {})
    if "damaged" in options:
        config = config.model_copy(update={"options": {**config.options, "damaged": "skip"}})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return load_split(config)
        except EquimetricError:
            # Without its damaged files the data set may be of no use; then they are the reason, and are told first.
            for warning in caught:
                typer.echo(f"equimetric: {warning.message}", err=True)
            raise


def report(dataset: Dataset, split: Split, alike: list[NearDuplicate]) -> None:
    """A line for every finding, and one for the whole."""
    lines = [f"damaged: {reason}" for reason in dataset.unreadable]
    for pair in alike:
        found = paths(dataset, pair)
        how = "equal" if pair.exact else f"{pair.bits} of 64 bits and {pair.difference:.1f} of 255 apart"
        lines.append(f"{pair.parts[0]} {found['first']} ~ {pair.parts[1]} {found['second']}: {how}")
    sizes = ", ".join(f"{len(indices):,} {part}" for part, indices in split.parts().items())
    lines.append(
        f"{dataset.name}: {len(dataset):,} images ({sizes}), {len(dataset.unreadable)} damaged files, "
        f"{len(alike)} near-duplicates across parts"
    )
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def paths(dataset: Dataset, pair: NearDuplicate) -> dict[str, str]:
    """The two files, counted from the root of the data set, or the numbers of images that have no file."""
    files = dataset.sample_attributes.get("file")
    return {
        name: f"image {index}" if files is None else files[index]
        for name, index in (("first", pair.first), ("second", pair.second))
    }
