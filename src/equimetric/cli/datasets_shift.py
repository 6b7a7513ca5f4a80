"""`equimetric datasets shift`."""

from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.catalogue import complete, list_backbones
from equimetric.cli.command import LOOK_UP, OUT, command
from equimetric.cli.console import build_table, console, show_path
from equimetric.cli.datasets import DATA_SOURCE, parse_source

__all__ = ["shift_command"]


@command(
    "datasets shift",
    panel=LOOK_UP,
    order=2,
    overrides=True,
    examples="""
    equimetric datasets shift cub --root CUB_200_2011 --out shifted.json

    Then in a configuration:
    data.split = { file = "shifted.json", number = 12 }
    """,
)
def shift_command(
    context: typer.Context,
    source: Annotated[str, DATA_SOURCE],
    out: Annotated[Path, typer.Option(*OUT, help="Write the class lists to this .json file.")],
    backbone: Annotated[
        str,
        typer.Option(
            "--backbone",
            help="Network whose mean features represent the classes.",
            autocompletion=complete(list_backbones),
        ),
    ] = "efficientnet_lite0",
    pretrained: Annotated[
        str,
        typer.Option("--pretrained", help="Its weights: package, timm, torchvision, a file, or none for random ones."),
    ] = "package",
    swaps: Annotated[int, typer.Option("--swaps", help="Classes of each side to swap, one after another.")] = 48,
    removals: Annotated[int, typer.Option("--removals", help="Classes of each side to remove after them.")] = 0,
    step: Annotated[int, typer.Option("--step", help="Swaps or removals from one split to the next.")] = 2,
    easier: Annotated[bool, typer.Option("--easier", help="Bring both sides nearer instead of apart.")] = False,
) -> None:
    """Build splits whose test classes move ever farther from the training classes, by Milbich et al. (2021).

    Split 0 is the data set's own. Each further split swaps the classes nearest to the other side; removals then drop
    such classes. The distance between the sides is the Fréchet distance of their class means.
    """
    from equimetric.data import write_shifted_splits
    from equimetric.runs.data import load_split
    from equimetric.runs.image_size import keep_in_files
    from equimetric.runs.shifting import shift_split

    config = keep_in_files(parse_source(source, context.args)).model_copy(update={"split": None})
    dataset, start = load_split(config)
    splits = shift_split(
        dataset,
        start,
        backbone=backbone,
        pretrained=None if pretrained == "none" else pretrained,
        swaps=swaps,
        removals=removals,
        step=step,
        easier=easier,
    )
    write_shifted_splits(out, splits, dataset)
    rows = []
    for index, split in enumerate(splits):
        counts = (index, split.swaps, split.removals, len(split.train), len(split.test))
        rows.append((*map(str, counts), f"{split.distance:.4g}"))
    headings = ("number", "swaps", "removals", "training classes", "test classes", "Fréchet distance")
    console.print(build_table(headings, rows))
    show_path("Class lists", out)
