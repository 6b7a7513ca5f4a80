"""`equimetric verify`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.command import DEPLOY, command
from equimetric.cli.console import show

__all__ = ["verify_command"]

EXIT_DIFFERENT = 1
"""Exit code where the certificate does not hold."""


@command(
    "verify",
    panel=DEPLOY,
    order=2,
    examples="""
    equimetric verify model
    equimetric verify model --task identification
    equimetric verify shop.gallery
    """,
)
def verify_command(
    folder: Annotated[Path, typer.Argument(help="A model of `equimetric export`, or a gallery of `equimetric index`.")],
    task: Annotated[
        str | None, typer.Option("--task", help="Required task of the certificate: verification or identification.")
    ] = None,
    program: Annotated[
        bool, typer.Option("--program", help="Also load model.pt2, by PyTorch's own loader: only a file you trust.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Say whether the certificate of an exported model holds on this machine (exit code 1 where it does not).

    Files, preprocessing, dimension, arithmetic and task must be those that were certified. Then the canaries, a few
    images that came with the model, pass through preprocessing and every installed runtime; the outputs must be those
    of the export.

    All files of a gallery are read and compared with their stored checksums.
    """
    from equimetric.deployment.load import load_exported
    from equimetric.deployment.verify import verify_model
    from equimetric.gallery.stores import is_gallery_folder

    if is_gallery_folder(folder):
        verify_gallery(folder, as_json)
        return
    verification = verify_model(folder, program=program)
    if task is not None:
        load_exported(folder, task=task)
    if as_json:
        typer.echo(json.dumps(verification.to_dict()))
    else:
        show(str(verification))
        show(verification.verdict)
    if not verification.holds:
        raise typer.Exit(EXIT_DIFFERENT)


def verify_gallery(folder: Path, as_json: bool) -> None:
    """Say whether the files of a gallery are what was written."""
    from equimetric.gallery import Gallery

    gallery = Gallery.open(folder)
    check = gallery.check()
    if as_json:
        result = {"holds": check.holds, "problems": check.problems, "skipped": check.skipped, "bytes": check.bytes}
        typer.echo(json.dumps({"items": len(gallery), **result}))
    else:
        for problem in check.problems:
            show(problem)
        for name in check.skipped:
            show(f"{name} was written by an earlier version, without checksums; Gallery.save writes a copy with them")
        verdict = "is what was written" if check.holds else "is damaged; restore it from a copy"
        show(f"The gallery of {len(gallery):,} images {verdict} ({check.bytes:,} bytes read).")
    if not check.holds:
        raise typer.Exit(EXIT_DIFFERENT)
