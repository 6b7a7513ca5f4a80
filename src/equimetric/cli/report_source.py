"""What `equimetric report` is given: a folder or a file, or something close to one, with what to give instead."""

import shlex
import tomllib
from pathlib import Path

import typer

from equimetric.errors import EquimetricError
from equimetric.escaping import name_text

__all__ = ["find_source"]

STORE = "store"
"""Where a folder of results keeps its study."""


def find_source(source: Path) -> Path:
    """The study, run or file behind a path; an error that names the next step where there is none yet."""
    from equimetric.studies.store import is_study

    if source.suffix == ".toml" and source.is_file():
        raise EquimetricError(f"{str(source)!r} is a configuration; give the study's folder, e.g. {folder_of(source)}")
    if not source.is_dir() or is_study(source) or (source / "config.toml").exists():
        return source
    if is_study(source / STORE):
        # Not on standard output, which may be a table.
        typer.echo(f"equimetric: the study is in {name_text(str(source / STORE))}", err=True)
        return source / STORE
    if (source / "study.toml").exists():
        again = f"equimetric compare {shlex.quote(str(source / 'study.toml'))}"
        raise EquimetricError(f"{str(source)!r} is a study that has not run yet: `{again}` runs it")
    return source


def folder_of(file: Path) -> str:
    """The folder that `equimetric compare` gives a study by its name; 'runs/NAME' where the name cannot be read."""
    for folder in (file.parent, file.parent / STORE):
        if (folder / "data.json").exists():
            return str(folder)
    try:
        name = tomllib.loads(file.read_text(encoding="utf-8")).get("name")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        name = None
    return f"runs/{name if isinstance(name, str) else 'NAME'}"
