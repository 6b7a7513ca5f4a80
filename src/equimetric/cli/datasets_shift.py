"""`equimetric datasets shift`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from equimetric.cli.console import console
from equimetric.cli.datasets import SOURCE_HELP, data_named
from equimetric.data import write_shifted_splits
from equimetric.runs.data import load_split
from equimetric.runs.shifting import shift_split

__all__ = ["shift"]


def shift(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help=SOURCE_HELP)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .json file for the class lists.")],
    backbone: Annotated[
        str, typer.Option("--backbone", help="Network whose mean features stand for the classes.")
    ] = "efficientnet_lite0",
    pretrained: Annotated[
        str,
        typer.Option("--pretrained", help="Its weights: package, timm, torchvision, a file; none: random ones."),
    ] = "package",
    swaps: Annotated[int, typer.Option("--swaps", help="Exchanges between training and test classes.")] = 48,
    removals: Annotated[int, typer.Option("--removals", help="Removals of classes after them.")] = 0,
    step: Annotated[int, typer.Option("--step", help="Classes of either side in each of them.")] = 2,
    easier: Annotated[bool, typer.Option("--easier", help="Bring both sides nearer instead of apart.")] = False,
) -> None:
    """Freeze splits whose test classes move ever farther from the training classes, by Milbich et al. (2021).

    Number 0 is the split the data set has. Each further one exchanges the classes that stand nearest to the other side,
    removals then take such classes away. How far apart the sides are is the Fréchet distance of their class means.

    Example: equimetric datasets shift cub --root CUB_200_2011 --out shifted.json

    Then in a configuration: data.split = { file = "shifted.json", number = 12 }
    """
    config = data_named(source, context.args).model_copy(update={"split": None})
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
    table = Table("number", "swaps", "removals", "training classes", "test classes", "Fréchet distance")
    for number, split in enumerate(splits):
        counts = (number, split.swaps, split.removals, len(split.train), len(split.test))
        table.add_row(*map(str, counts), f"{split.distance:.4g}")
    console.print(table)
    console.print(f"Class lists: {out}", highlight=False, markup=False, soft_wrap=True)
