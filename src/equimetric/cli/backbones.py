"""`equimetric backbones`."""

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from equimetric.backbones import BACKBONES, LIBRARY_MODELS, build_backbone, weights_on_offer
from equimetric.cli.console import console

__all__ = ["backbones"]


def backbones(
    name: Annotated[str | None, typer.Argument(help="Show one in full: a name of the list, or timm:resnet50.")] = None,
) -> None:
    """List the networks with input size, features, and where their pretrained weights come from.

    In a configuration: model = { backbone = "efficientnet_lite0", pretrained = "package", dim = 128 }

    Of libraries any classification model can be taken: model.backbone = "timm:resnet50", pretrained = "timm", or the
    path of a weight file. Without `pretrained` a network starts from random weights.
    """
    if name is not None:
        show_one(name)
        return
    table = Table(
        Column("backbone", no_wrap=True), "input", "features", "what it is", Column("pretrained", overflow="fold")
    )
    for record in BACKBONES.values():
        size = f"{record.size}×{record.size}"
        table.add_row(record.name, size, str(record.features), record.summary, escape(weights_on_offer(record.name)))
    for model, summary in LIBRARY_MODELS.items():
        table.add_row(model, "its own", "its own", summary, escape(weights_on_offer(model)))
    console.print(table)


def show_one(name: str) -> None:
    """A network as it is built: what it expects of an image, and how large it is."""
    network = build_backbone(name)
    expected = network.convention
    rows = {
        "input": f"{expected.size}×{expected.size} from a shorter side of {expected.resize}, {expected.interpolation}",
        "channels": f"{expected.channels} in the order {expected.order}, mean {shown(expected.mean)}, "
        f"deviation {shown(expected.std)} (bytes)",
        "features": f"{network.features}",
        "parameters": f"{sum(parameter.numel() for parameter in network.parameters()):,}",
        "pretrained": weights_on_offer(name),
    }
    table = Table(name, "")
    for row, text in rows.items():
        table.add_row(row, escape(text))
    console.print(table)


def shown(values: tuple[float, ...]) -> str:
    """'104 117 128'."""
    return " ".join(f"{value:.4g}" for value in values)
