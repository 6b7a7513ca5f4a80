"""Benchmarks: what each script prints in its last recorded run."""

import ast
import json
from pathlib import Path

__all__ = ["benchmark_pages"]

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def benchmark_pages() -> dict[str, tuple[str, str]]:
    """One page: each script with its purpose, and the record of its last run where there is one."""
    sections = [
        "# Benchmarks",
        "",
        "Every claim about speed or memory has a script in `benchmarks/` that runs the other side in turns with ours"
        " and prints ratios. `python benchmarks/record.py SCRIPT …` runs one and keeps what it printed, with date,"
        " versions and the load of the machine; this page shows the last record of each, word for word. A script"
        " without one has its figures where its subject is explained.",
    ]
    for script in sorted(BENCHMARKS.glob("*.py")):
        purpose = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
        # Runs of one script beside the first: SCRIPT-RUN.json.
        recorded = BENCHMARKS / "recorded"
        records = [*recorded.glob(f"{script.stem}.json"), *sorted(recorded.glob(f"{script.stem}-*.json"))]
        if records:
            sections += ["", f"## {script.stem}", "", purpose]
        for record in records:
            sections += ["", record_section(json.loads(record.read_text(encoding="utf-8")))]
    return {"benchmarks/index.md": ("Benchmarks", "\n".join(sections) + "\n")}


def record_section(record: dict[str, str]) -> str:
    """What was run, where, and what it printed."""
    return (
        f"`{record['command']}`\n\n{record['date']}, {record['machine']}, {record['versions']}; {record['load']}.\n\n"
        f"```text\n{record['output'].rstrip()}\n```"
    )
