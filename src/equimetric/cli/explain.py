"""`equimetric explain`."""

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from equimetric.cli.console import console
from equimetric.errors import EquimetricError
from equimetric.explain import draw_weights, weight_curves
from equimetric.objectives import Context, Objective, ObjectiveSum, build_objective
from equimetric.objectives.composition import objective

__all__ = ["explain"]

FORMATS = (".png", ".svg", ".pdf")


def explain(
    methods: Annotated[list[str], typer.Argument(help="Methods, or losses of your own as package.module:name.")],
    out: Annotated[Path, typer.Option(help="File of the figure (.png, .svg or .pdf).")] = Path("weights.png"),
    companions: Annotated[str, typer.Option(help="Cosines of the anchor's other pairs of that kind.")] = "0.2,0.5,0.8",
    against: Annotated[str, typer.Option(help="Cosines of the anchor's pairs of the other kind.")] = "0.5",
) -> None:
    """Show a loss as the weight it gives to a pair, against the pair's similarity.

    Every pair-based loss is a weight for each pair: what it pulls, what it pushes, and how hard. The curves follow
    one pair of an anchor whose other pairs stay where they are.
    """
    if out.suffix.lower() not in FORMATS:
        raise EquimetricError(f"a figure is written as {' or '.join(FORMATS)}, not as {out.suffix or out.name!r}")
    same_side, other_side = numbers(companions), numbers(against)
    curves = [weight_curves(find(method), same_side=same_side, other_side=other_side) for method in methods]
    console.print(f"Figure: {draw_weights(curves, out)}", highlight=False, soft_wrap=True)


def find(name: str) -> Objective | ObjectiveSum:
    """A method of the catalogue, or a loss of the user's own."""
    if ":" not in name:
        return build_objective(name, {}, Context(classes=2, dim=1, images=1))
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise EquimetricError(f"cannot find {name!r}: {error}; give package.module:name of a loss") from None
    finally:
        sys.path.pop(0)
    if isinstance(found, Objective | ObjectiveSum):
        return found
    if not callable(found):
        raise EquimetricError(f"{name!r} is {type(found).__name__}, not a loss; give a function of pairs or a module")
    if isinstance(found, type):
        try:
            found = found()
        except TypeError as error:
            raise EquimetricError(f"{name!r} cannot be made without options: {error}; give an object of it") from None
    return objective(found)


def numbers(text: str) -> tuple[float, ...]:
    """'0.2,0.5' → (0.2, 0.5)."""
    try:
        cosines = tuple(float(number) for number in text.split(",") if number.strip())
    except ValueError:
        raise EquimetricError(f"cosines are numbers separated by commas, such as 0.2,0.5, not {text!r}") from None
    if any(not -1 <= cosine <= 1 for cosine in cosines):
        raise EquimetricError(f"cosines lie between -1 and 1, not {text!r}")
    return cosines
