"""`equimetric search`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equimetric.cli.command import DEPLOY, command
from equimetric.cli.console import show
from equimetric.cli.options import GalleryPath, ModelFolder, Runtime
from equimetric.errors import EquimetricError
from equimetric.escaping import name_text

if TYPE_CHECKING:
    from equimetric.deployment.searching import Answer
    from equimetric.gallery import Gallery

__all__ = ["search_command"]

UNREADABLE = 1
"""Exit code where an image could not be read."""


@command(
    "search",
    panel=DEPLOY,
    order=5,
    examples="""
    equimetric search shop.gallery query.jpg
    equimetric search shop.gallery shelf-photos --k 1
    equimetric search shop.gallery query.jpg --within
    equimetric search shop.gallery query.jpg --json
    equimetric search shop.gallery query.jpg --model moved/model
    """,
)
def search_command(
    gallery: GalleryPath,
    queries: Annotated[list[Path], typer.Argument(help="Images, or folders of images.")],
    k: Annotated[int, typer.Option("--k", "-k", help="Number of closest images to show.")] = 5,
    within: Annotated[
        bool, typer.Option("--within", help="Show all images within the threshold, instead of the closest.")
    ] = False,
    model: ModelFolder = None,
    runtime: Runtime = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
) -> None:
    """Say what an image shows: the name that the gallery's certificate accepts, or 'unknown'.

    Below the name stand the closest images of the gallery with their distances, or with a cohort their scores. The
    search is exact, and the threshold is the certified one. The model is verified first: one that is missing, that was
    changed, or that computes something else on this machine is an error. Images that cannot be read are named, and the
    exit code is then 1.
    """
    from equimetric.deployment.gallery_models import load_gallery_model
    from equimetric.deployment.searching import list_queries, search_images
    from equimetric.gallery import Gallery

    if k < 1:
        raise EquimetricError(f"--k is {k}; give a whole number of at least 1")
    files = list_queries(queries)
    opened = Gallery.open(gallery)
    loaded = load_gallery_model(opened, model, runtime=runtime)  # type: ignore[arg-type]
    answers = list(search_images(opened, loaded, files, k=k, within=within))
    if as_json:
        typer.echo(json.dumps({**describe_gallery(opened), "queries": [answer.to_dict() for answer in answers]}))
    else:
        for answer in answers:
            show(format_answer(answer))
        show(explain_threshold(opened))
    if any(answer.problem is not None for answer in answers):
        raise typer.Exit(UNREADABLE)


def describe_gallery(gallery: "Gallery") -> dict[str, Any]:
    """The gallery and its threshold in plain types."""
    certificate = gallery.certificate
    return {
        "gallery": str(gallery.folder),
        "items": len(gallery),
        "task": certificate.task,
        "accepted": "distances below" if certificate.cohort is None else "scores above",
        "threshold": certificate.threshold,
    }


def format_answer(answer: "Answer") -> str:
    """The name, and a line for each match."""
    if answer.problem is not None:
        return name_text(f"{answer.image}: cannot be read ({answer.problem})")
    width = max((len(match.name) for match in answer.matches), default=0)
    lines = [
        f"  {match.score:8.4f}  {match.name:{width}}  {match.id}" + ("" if match.accepted else "  (not accepted)")
        for match in answer.matches
    ]
    name = "unknown" if answer.name is None else answer.name
    return "\n".join(name_text(line) for line in [f"{answer.image}: {name}", *lines])


def explain_threshold(gallery: "Gallery") -> str:
    """The acceptance rule and its guarantee."""
    facts = describe_gallery(gallery)
    rule = f"Accepted are {facts['accepted']} {facts['threshold']:.4g}, certified for {facts['task']}"
    if facts["task"] == "identification":
        return f"{rule}."
    return (
        f"{rule}: the rate is that of one pair. Among {facts['items']:,} images a stranger finds one more often; a "
        "model exported with --task identification bounds that."
    )
