"""Runs notebooks and stores what they print and draw in them: `python -m website.notebook_runs docs/notebooks/*.ipynb`.

The pages of the site show these outputs. A notebook remembers the code that made them, so that a test finds outputs of
other code.
"""

import ast
import base64
import hashlib
import io
import json
import os
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

__all__ = ["code_checksum", "run_cell", "run_notebook"]

DPI = 72


def code_checksum(cells: list[dict[str, Any]]) -> str:
    """A checksum of the code of a notebook."""
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return hashlib.sha256(code.encode()).hexdigest()


def run_notebook(notebook: dict[str, Any]) -> None:
    """Run all cells in order and put their outputs in."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = run_cell("".join(cell["source"]), names)
    notebook["metadata"]["outputs_of"] = code_checksum(notebook["cells"])


def run_cell(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints, then its figures, then the value of its last line."""
    from matplotlib import pyplot

    *body, last = ast.parse(source).body
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        end = ast.Expression(last.value) if isinstance(last, ast.Expr) else ast.Module([last], [])
        value = eval(compile(end, "cell", "eval" if isinstance(last, ast.Expr) else "exec"), names)
    outputs = [{"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())}]
    outputs += [shown("display_data", {"image/png": png(pyplot.figure(number))}) for number in pyplot.get_fignums()]
    pyplot.close("all")
    if value is not None:
        outputs.append(shown("execute_result", {"text/plain": lines(repr(value))}) | {"execution_count": None})
    return [output for output in outputs if output.get("text", True)]


def shown(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """An output in the format of notebooks."""
    return {"data": data, "metadata": {}, "output_type": kind}


def png(figure: Any) -> str:
    """A figure as a picture of a few kilobytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, bbox_inches="tight")
    return base64.b64encode(file.getvalue()).decode()


def lines(text: str) -> list[str]:
    """Text as notebooks store it."""
    return text.splitlines(keepends=True)


def main() -> None:
    """Run the notebooks that are named, with the data that all readers have."""
    os.environ.pop("EQUIMETRIC_PHOTOS", None)
    warnings.simplefilter("ignore")
    for file in map(Path, sys.argv[1:]):
        notebook = json.loads(file.read_text(encoding="utf-8"))
        run_notebook(notebook)
        file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
