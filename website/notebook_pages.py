"""Pages of the notebooks: their text and code, and the file for download.

Outputs are left out: computing them takes minutes, and a notebook is there to be run.
"""

import json
from pathlib import Path

__all__ = ["notebook_pages"]

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"


def notebook_pages() -> dict[str, tuple[str, str]]:
    """A page for each notebook, under its title."""
    pages = {}
    for file in sorted(NOTEBOOKS.glob("*.ipynb"), reverse=True):
        first, *cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        title, _, rest = "".join(first["source"]).partition("\n")
        download = f'[Download the notebook]({file.name}){{ .md-button download="{file.name}" }}'
        text = "\n\n".join([title, download, rest.strip(), *map(cell_text, cells)])
        pages[f"notebooks/{file.stem}.md"] = (title.removeprefix("# "), text + "\n")
    return pages


def cell_text(cell: dict[str, list[str] | str]) -> str:
    """Text as it is, code as a block."""
    source = "".join(cell["source"])
    return source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
