"""`equimetric remove`."""

from typing import Annotated

import typer

from equimetric.cli.command import DEPLOY, command
from equimetric.cli.console import show
from equimetric.cli.options import GalleryPath
from equimetric.errors import EquimetricError

__all__ = ["remove_command"]


@command(
    "remove",
    panel=DEPLOY,
    order=6,
    examples="""
    equimetric remove shop.gallery cola/0012.jpg
    equimetric remove shop.gallery "cola/*" "*/old-*.jpg"
    equimetric remove shop.gallery --label "Oat milk 1 l"
    """,
)
def remove_command(
    gallery: GalleryPath,
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of images, as a search shows them, or patterns such as 'cola/*'.")
    ] = None,
    label: Annotated[str | None, typer.Option("--label", help="Remove all images with this label.")] = None,
) -> None:
    """Remove images from a gallery.

    Searches no longer find them. Their vectors stay in the files of an embedded gallery until a copy is written:
    Gallery.open("shop.gallery").save("copy.gallery").
    """
    from equimetric.deployment.indexing import choose_items
    from equimetric.gallery import Gallery

    if not names and label is None:
        raise EquimetricError("nothing is named that could be removed; give names of images, or --label")
    opened = Gallery.open(gallery)
    ids = choose_items(opened, names or (), label)
    opened.remove(ids)
    show(f"{len(ids):,} removed; the gallery has {len(opened):,} images")
