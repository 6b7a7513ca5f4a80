"""`equimetric backbones`."""

from typing import Annotated

import typer

from equimetric.cli.catalogue import complete, list_backbones
from equimetric.cli.command import LOOK_UP, command
from equimetric.cli.console import build_table, console
from equimetric.weight_sources import LIBRARY_MODELS, describe_library_weights, describe_weights

__all__ = ["backbones_command"]


@command(
    "backbones",
    panel=LOOK_UP,
    order=3,
    examples="""
    equimetric backbones
    equimetric backbones timm:resnet50

    In a configuration:
    model = { backbone = "efficientnet_lite0", pretrained = "package", dim = 128 }
    """,
)
def backbones_command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Describe this one: a listed name, or timm:resnet50.", autocompletion=complete(list_backbones)
        ),
    ] = None,
) -> None:
    """List the networks with input size, feature dimension, and the source of their pretrained weights.

    Any classification model of timm or torchvision works too: model.backbone = "timm:resnet50" with
    model.pretrained = "timm" or the path of a weight file. Without `pretrained`, weights are random.
    """
    if name is not None:
        describe_backbone(name)
        return
    rows = []
    for declared in list_backbones().values():
        keywords = declared.keywords
        weights = describe_weights(keywords.get("package"), keywords.get("public_file"))
        size, features = keywords.get("size"), keywords.get("num_features")
        rows.append((declared.name, f"{size}×{size}", str(features), declared.summary, weights))
    for model, summary in LIBRARY_MODELS.items():
        weights = describe_library_weights(model.partition(":")[0])
        rows.append((model, "its own", "its own", summary, weights))
    console.print(build_table(("backbone", "input", "features", "description", "pretrained"), rows))


def describe_backbone(name: str) -> None:
    """Build a network and show its input convention and its size."""
    from equimetric.backbones import build_backbone, describe_weight_options

    network = build_backbone(name)
    expected = network.convention
    rows = {
        "input": f"{expected.size}×{expected.size} from a shorter side of {expected.resize}, {expected.interpolation}",
        "channels": f"{expected.channels} in the order {expected.order}, mean {format_numbers(expected.mean)}, "
        f"deviation {format_numbers(expected.std)} (bytes)",
        "features": f"{network.num_features}",
        "parameters": f"{sum(parameter.numel() for parameter in network.parameters()):,}",
        "pretrained": describe_weight_options(name),
    }
    console.print(build_table((name, ""), rows.items()))


def format_numbers(values: tuple[float, ...]) -> str:
    """'104 117 128'."""
    return " ".join(f"{value:.4g}" for value in values)
