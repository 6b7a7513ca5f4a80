"""Pages of the notebooks: text, code and outputs as the notebook stores them, and the file for download."""

import json
from pathlib import Path
from typing import Any

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


def cell_text(cell: dict[str, Any]) -> str:
    """Text as it is, code as a block with what it gives below."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    return "\n\n".join([f"```python\n{source}\n```", *map(output_text, cell["outputs"])])


def output_text(output: dict[str, Any]) -> str:
    """A figure, or what was printed."""
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="What the code above draws" src="data:image/png;base64,{data["image/png"]}">'
    return f"```text\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n```"
