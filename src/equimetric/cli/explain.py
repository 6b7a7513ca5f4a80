"""`equimetric explain`."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equimetric.cli.catalogue import complete, list_methods
from equimetric.cli.command import EVALUATE, OUT, command
from equimetric.cli.console import show, show_path
from equimetric.cli.own_methods import load_methods
from equimetric.errors import EquimetricError

if TYPE_CHECKING:
    from torch import Tensor

    from equimetric.explain.unified_view import WeightPanel
    from equimetric.objectives import Objective, ObjectiveSum

__all__ = ["explain_command"]

FORMATS = (".png", ".svg", ".pdf")
SIZES = {"classes": 2, "dim": 64, "images": 1}
"""What a figure is drawn with."""


@command(
    "explain",
    panel=EVALUATE,
    order=3,
    examples="""
    equimetric explain                                 Figure 1, and RAW
    equimetric explain triplet margin=0.2              Figure 1, another margin
    equimetric explain circle --out weights.png        Figure 1, with this beside it
    equimetric explain triplet margin=0.2 arcface --only      these two alone
    equimetric explain raw --against multi_similarity         whether they have the same gradients
    equimetric explain triplet --against "triplet margin=0.2" --embeddings test.npz
    equimetric explain my_losses:gap margin=0.3        a loss of your own, in my_losses.py
    """,
)
def explain_command(
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            help="Methods, or your own losses as module:name, each followed by its options as name=value; "
            "drawn with the four losses of the Unified View's Figure 1, with the options given to one of these.",
            autocompletion=complete(list_methods),
        ),
    ] = None,
    out: Annotated[Path, typer.Option(*OUT, help="File of the figure (.png, .svg or .pdf).")] = Path("weights.png"),
    only: Annotated[bool, typer.Option("--only", help="Draw the named methods alone.")] = False,
    companions: Annotated[
        str, typer.Option(help="Cosines of the anchor's other pairs of the same kind, beside Figure 1.")
    ] = "0.2,0.5,0.8",
    opposite: Annotated[
        str, typer.Option(help="Cosines of the anchor's pairs of the other kind, beside Figure 1.")
    ] = "0.5",
    against: Annotated[
        str | None,
        typer.Option(
            help="Draw nothing; say whether the method is gradient equivalent to this one, given with its options in "
            "quotes.",
            autocompletion=complete(list_methods),
        ),
    ] = None,
    embeddings: Annotated[
        Path | None,
        typer.Option(help="Batch for --against: a file of embeddings and labels; random batches by default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --against: print one JSON object.")] = False,
) -> None:
    """Draw the weight that a loss gives to a pair, against the similarity of the pair.

    A pair-based loss acts through one weight per pair: which pairs it pulls together or pushes apart, and how hard.
    Each curve moves one pair of an anchor and keeps its other pairs fixed. --against compares gradients instead: two
    methods with the same gradients on a batch train every network alike on it.
    """
    if against is not None:
        compare_gradients(methods or [], against, embeddings, as_json=as_json)
        return
    if embeddings is not None or as_json:
        raise EquimetricError("--embeddings and --json belong to --against; add it")
    if out.suffix.lower() not in FORMATS:
        raise EquimetricError(f"a figure is written as {' or '.join(FORMATS)}, not as {out.suffix or out.name!r}")
    same_side, other_side = parse_cosines(companions), parse_cosines(opposite)
    from equimetric.explain import draw_weights, unified_view_curves, weight_curves
    from equimetric.explain.unified_view import FIGURE_PANELS, panel_curves

    if not methods:
        if only:
            raise EquimetricError("--only draws the named methods alone; name one")
        show_path("Figure", draw_weights(unified_view_curves(), out))
        return
    named = split_options(methods)
    changed, others = ({}, [(*method, None) for method in named]) if only else split_figure(named)
    curves = [] if only else unified_view_curves(FIGURE_PANELS, changed)
    for name, option_texts, panel in others:
        if panel is not None:
            curves.append(panel_curves(panel, parse_options(option_texts)))
            continue
        loss = find_objective(name, parse_options(option_texts))
        curve = weight_curves(loss, same_side=same_side, other_side=other_side)
        curves.append(replace(curve, name=" ".join([curve.name, *option_texts])))
    show_path("Figure", draw_weights(curves, out))


def compare_gradients(methods: list[str], against: str, file: Path | None, *, as_json: bool) -> None:
    """Say whether two methods are gradient equivalent, on random batches or on that of a file."""
    named, other = split_options(methods), split_options(shlex.split(against))
    if len(named) != 1 or len(other) != 1:
        raise EquimetricError("--against compares two methods; write for example: explain raw --against binomial")
    from equimetric.explain import gradient_equivalent

    batches = None if file is None else [read_batch(file)]
    sizes = {"classes": 8, "dim": 16, "images": 32}
    if batches is not None:
        points, labels = batches[0]
        sizes = {"classes": int(labels.max()) + 1, "dim": points.shape[1], "images": len(points)}
    first, second = (find_seeded(name, parse_options(texts), sizes) for (name, texts) in (*named, *other))
    found = replace(
        gradient_equivalent(first, second, batches), first=" ".join([named[0][0], *named[0][1]]), second=against
    )
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
    else:
        show(str(found))


def read_batch(file: Path) -> "tuple[Tensor, Tensor]":
    """The embeddings of a file, and their labels as class ids."""
    import numpy as np
    import torch

    from equimetric.evaluation.files import read_embeddings

    arrays = read_embeddings(file)
    _, ids = np.unique(arrays["labels"], return_inverse=True)
    return torch.as_tensor(arrays["embeddings"]).double(), torch.as_tensor(ids)


def find_seeded(name: str, options: dict[str, Any], sizes: dict[str, int]) -> "Objective | ObjectiveSum":
    """The objective, whose proxies are the same every time."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return find_objective(name, options, sizes)


def split_options(arguments: list[str]) -> list[tuple[str, list[str]]]:
    """['triplet', 'margin=0.2', 'raw'] → [('triplet', ['margin=0.2']), ('raw', [])]."""
    groups: list[tuple[str, list[str]]] = []
    for argument in arguments:
        if "=" not in argument:
            groups.append((argument, []))
        elif not groups:
            raise EquimetricError(
                f"the option {argument!r} has no method before it; write for example: triplet {argument}"
            )
        else:
            groups[-1][1].append(argument)
    return groups


def split_figure(
    named: list[tuple[str, list[str]]],
) -> tuple[dict[str, dict[str, Any]], list[tuple[str, list[str], "WeightPanel | None"]]]:
    """Options for the methods of Figure 1, and the methods drawn beside it: others, and further mentions of these.

    A further mention has the panel that it is drawn like.
    """
    from equimetric.explain.unified_view import FIGURE_PANELS

    panels = {panel.method: panel for panel in FIGURE_PANELS}
    changed: dict[str, dict[str, Any]] = {}
    others = []
    for name, option_texts in named:
        panel = panels.get(catalogue_name(name))
        if panel is not None and panel.method not in changed:
            changed[panel.method] = parse_options(option_texts)
        else:
            others.append((name, option_texts, panel))
    return changed, others


def catalogue_name(name: str) -> str:
    """The catalogue's own name of a single method, which may have been given by another one; else what was given."""
    from equimetric.objectives.grammar import parse_method

    if ":" in name:
        return name
    terms = parse_method(name)
    return terms[0][1].name if len(terms) == 1 and terms[0][0] == 1 else name


def parse_options(texts: list[str]) -> dict[str, Any]:
    """['margin=0.2'] → {'margin': 0.2}."""
    from equimetric.configuration import parse_overrides

    return parse_overrides([f"--{text}" for text in texts])


def find_objective(name: str, options: dict[str, Any], sizes: Mapping[str, int] = SIZES) -> "Objective | ObjectiveSum":
    """A method of the catalogue, or a user's own loss or objective, with options."""
    from equimetric.objectives import Context, Objective, ObjectiveSum, build_objective
    from equimetric.plugins import find_plugin_object

    if ":" in name:
        load_methods(name)
        target = find_plugin_object(name) if "+" not in name else None
        if isinstance(target, Objective | ObjectiveSum):
            if options:
                raise EquimetricError(
                    f"{name!r} is an objective that is made already; it takes no {next(iter(options))}"
                )
            return target
    return build_objective(name, options, Context(**sizes))


def parse_cosines(text: str) -> tuple[float, ...]:
    """'0.2,0.5' → (0.2, 0.5)."""
    try:
        cosines = tuple(float(value) for value in text.split(",") if value.strip())
    except ValueError:
        raise EquimetricError(f"cosines are numbers separated by commas, such as 0.2,0.5, not {text!r}") from None
    if any(not -1 <= cosine <= 1 for cosine in cosines):
        raise EquimetricError(f"cosines lie between -1 and 1, not {text!r}")
    return cosines
