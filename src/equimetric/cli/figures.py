"""Figures that commands write as PNG files."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from equimetric.errors import EquimetricError, StorageError
from equimetric.files import explain_write_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["require_figure_folder", "save_figures"]

Drawing = tuple[str, Callable[[], "Figure"]]
"""The name of a figure, and the function that draws it."""


def require_figure_folder(folder: Path | None) -> None:
    """Raise an error where figures are asked for in something that is no folder, before anything is computed."""
    if folder is not None and folder.exists() and not folder.is_dir():
        raise EquimetricError(f"--plots takes a folder, and {str(folder)!r} is a file; give another name")


def save_figures(folder: Path, drawings: Iterable[Drawing]) -> list[Path]:
    """Draw each figure and write it to NAME.png in a folder, which is created where it is missing."""
    files = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, draw in drawings:
            files.append(folder / f"{name}.png")
            draw().savefig(files[-1], dpi=150)
    except OSError as error:
        raise StorageError(
            f"figures cannot be written to {str(folder)!r}: {explain_write_error(error)}; give another folder"
        ) from error
    return files
