"""`equimetric explain`."""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equimetric.cli.command import EVALUATE, command
from equimetric.cli.completion import complete, list_methods
from equimetric.cli.console import show_path
from equimetric.errors import EquimetricError

if TYPE_CHECKING:
    from equimetric.objectives import Objective, ObjectiveSum

__all__ = ["explain_command"]

FORMATS = (".png", ".svg", ".pdf")


@command(
    "explain",
    panel=EVALUATE,
    order=3,
    examples="""
    equimetric explain triplet contrastive --out weights.png
    equimetric explain my_package.losses:my_loss
    """,
)
def explain_command(
    methods: Annotated[
        list[str],
        typer.Argument(
            help="Methods, or your own losses as package.module:name.", autocompletion=complete(list_methods)
        ),
    ],
    out: Annotated[Path, typer.Option(help="File of the figure (.png, .svg or .pdf).")] = Path("weights.png"),
    companions: Annotated[
        str, typer.Option(help="Cosines of the anchor's other pairs of the same kind.")
    ] = "0.2,0.5,0.8",
    against: Annotated[str, typer.Option(help="Cosines of the anchor's pairs of the other kind.")] = "0.5",
) -> None:
    """Draw the weight that a loss gives to a pair, against the similarity of the pair.

    A pair-based loss acts through one weight per pair: which pairs it pulls together or pushes apart, and how hard.
    Each curve moves one pair of an anchor and keeps its other pairs fixed.
    """
    if out.suffix.lower() not in FORMATS:
        raise EquimetricError(f"a figure is written as {' or '.join(FORMATS)}, not as {out.suffix or out.name!r}")
    same_side, other_side = parse_cosines(companions), parse_cosines(against)
    from equimetric.explain import draw_weights, weight_curves

    curves = [weight_curves(find_objective(name), same_side=same_side, other_side=other_side) for name in methods]
    show_path("Figure", draw_weights(curves, out))


def find_objective(name: str) -> "Objective | ObjectiveSum":
    """A method of the catalogue, or a user's own loss."""
    from equimetric.objectives import Context, Objective, ObjectiveSum, build_objective
    from equimetric.objectives.composition import objective

    if ":" not in name:
        return build_objective(name, {}, Context(classes=2, dim=64, images=1))
    found = import_object(name)
    if isinstance(found, Objective | ObjectiveSum):
        return found
    if not callable(found):
        raise EquimetricError(f"{name!r} is {type(found).__name__}, not a loss; give a function of pairs or a module")
    if isinstance(found, type):
        try:
            found = found()
        except TypeError as error:
            raise EquimetricError(f"{name!r} cannot be made without options: {error}; give an object of it") from None
    built: Objective | ObjectiveSum = objective(found)
    return built


def import_object(name: str) -> Any:
    """The object 'package.module:name', also from the current folder."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise EquimetricError(f"cannot find {name!r}: {error}; give package.module:name of a loss") from None
    finally:
        sys.path.pop(0)


def parse_cosines(text: str) -> tuple[float, ...]:
    """'0.2,0.5' → (0.2, 0.5)."""
    try:
        cosines = tuple(float(number) for number in text.split(",") if number.strip())
    except ValueError:
        raise EquimetricError(f"cosines are numbers separated by commas, such as 0.2,0.5, not {text!r}") from None
    if any(not -1 <= cosine <= 1 for cosine in cosines):
        raise EquimetricError(f"cosines lie between -1 and 1, not {text!r}")
    return cosines
