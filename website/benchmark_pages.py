"""Benchmarks: what each script prints in its last recorded run, and in a sentence what that shows."""

import ast
import json
import tomllib
from pathlib import Path

__all__ = ["benchmark_pages"]

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
NO_BENCHMARKS = {"record", "plain_heads"}
"""Modules that the scripts use."""


def benchmark_pages() -> dict[str, tuple[str, str]]:
    """One page: what all scripts show, and the record of the last run of each that has one."""
    about = tomllib.loads((BENCHMARKS / "shown.toml").read_text(encoding="utf-8"))
    scripts = [script for script in sorted(BENCHMARKS.glob("*.py")) if script.stem not in NO_BENCHMARKS]
    lines = [
        "# Benchmarks",
        "",
        "Every claim about speed or memory has a script in `benchmarks/` that runs the other side in turns with ours"
        " and prints ratios. `python benchmarks/record.py SCRIPT …` runs one and keeps what it printed, with date,"
        " versions and the load of the machine; below are these records, word for word. Other processes were"
        " running during most of them: since both sides alternate, load affects absolute times but hardly the ratios.",
        "",
        "| script | what its last run shows |",
        "|---|---|",
    ]
    lines += [f"| {name_of(script)} | {about.get(script.stem, purpose(script))} |" for script in scripts]
    for script in scripts:
        if records_of(script):
            lines += ["", f"## {script.stem}", "", purpose(script)]
        for record in records_of(script):
            lines += ["", record_section(json.loads(record.read_text(encoding="utf-8")))]
    return {"benchmarks/index.md": ("Benchmarks", "\n".join(lines) + "\n")}


def records_of(script: Path) -> list[Path]:
    """The records of the last runs of a script: SCRIPT.json, and SCRIPT-RUN.json of those kept beside it."""
    folder = script.parent / "recorded"
    return [*folder.glob(f"{script.stem}.json"), *sorted(folder.glob(f"{script.stem}-*.json"))]


def name_of(script: Path) -> str:
    """The script's name, with a link to its record if there is one."""
    return f"[`{script.stem}`](#{script.stem})" if records_of(script) else f"`{script.stem}`"


def purpose(script: Path) -> str:
    """The first paragraph of a script, in one line."""
    text = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
    return text.replace("\n", " ")


def record_section(record: dict[str, str]) -> str:
    """What was run, where, and what it printed."""
    return (
        f"`{record['command']}`\n\n{record['date']}, {record['machine']}, {record['versions']}; {record['load']}.\n\n"
        f"```text\n{record['output'].rstrip()}\n```"
    )
