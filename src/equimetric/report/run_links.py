"""Where the runs of a study are, seen from the page that is written about them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

__all__ = ["RunLinks", "links_to_runs"]


@dataclass(frozen=True)
class RunLinks:
    """Relative links from a report page to its run folders, valid as long as the page is not moved.

    Attributes:
        base: the study's folder from that of the page, as a URL that ends in a slash.
        place: the last parts of the page's own path; a page whose path ends otherwise has been moved, and its script
            makes no links that would be dead.
    """

    base: str
    place: str


def links_to_runs(study: Path, destination: Path) -> RunLinks | None:
    """The links of a page in the folder `destination`; None where no path leads from there to the study."""
    page = destination.resolve() / "index.html"
    try:
        base = Path(os.path.relpath(study.resolve(), page.parent)).as_posix()
    except ValueError:  # another drive
        return None
    return RunLinks(f"{quote(base)}/", "/".join(page.parts[-3:]))
