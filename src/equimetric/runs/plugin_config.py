"""Configurations that name plug-ins: read, with the plug-ins found and loaded before they are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from equimetric.configuration import Strict, load_config, to_plain
from equimetric.errors import EquimetricError, quote
from equimetric.plugins import describe_missing, find_plugins, load_plugins, require_importable_plugins

__all__ = ["load_with_plugins", "require_plugins"]

Model = TypeVar("Model", bound=Strict)


def load_with_plugins(
    source: Model | Mapping[str, Any] | str | Path,
    model: type[Model],
    overrides: Mapping[str, Any] | None = None,
    *,
    complete: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Model:
    """A configuration that the caller names, as `load_config` gives it, with its plug-ins loaded.

    Files are looked for beside the configuration, those of overrides in the current folder first; 'my_losses:gap' as a
    method names a plug-in, too. A configuration that has been checked already may come from the folder of a run: it
    loads nothing, and an error says which plug-ins it misses.
    """
    require_importable_plugins("a run or a study")
    if isinstance(source, Strict):
        config = load_config(source, model, overrides)
        require_plugins(config.plugins)  # type: ignore[attr-defined]
        return config
    folder = Path() if isinstance(source, Mapping) else Path(source).parent
    changes = dict(overrides or {})
    if "plugins" in changes:
        changes["plugins"] = find_plugins(listed(changes["plugins"]), Path())

    def load_and_complete(values: dict[str, Any]) -> dict[str, Any]:
        values = complete(values) if complete else values
        named = [] if values.get("plugins") is None else listed(values["plugins"])
        values["plugins"] = with_named_modules(find_plugins(named, folder), values, folder)
        load_plugins(*values["plugins"], folder=folder)
        return values

    return load_config(source, model, changes, complete=load_and_complete)


def listed(plugins: Any) -> list[str]:
    """The value of `plugins`: a name, or a list of names."""
    names = to_plain(plugins, "plugins: ")
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise EquimetricError(f"plugins are files or modules, such as ['my_losses.py'], got {quote(plugins)}")
    return names


def with_named_modules(plugins: list[str], values: Mapping[str, Any], folder: Path) -> list[str]:
    """The plug-ins with the modules of methods 'module:name' that are not among them: files of a folder, or modules."""
    known = {Path(plugin).stem if plugin.endswith(".py") else plugin for plugin in plugins}
    for module in dict.fromkeys(named_modules(values)):
        if module not in known:
            places = (folder / f"{module}.py", Path(f"{module}.py"))
            file = next((file for file in places if file.is_file()), None)
            plugins = [*plugins, module if file is None else str(file.resolve())]
    return plugins


def named_modules(values: Mapping[str, Any]) -> Iterator[str]:
    """The modules of the methods 'module:name' of a run or a study."""
    tables = [table for key in ("methods", "arms") for table in tables_of(values.get(key))]
    for text in (values.get("method"), *(table.get(key) for table in tables for key in ("method", "add"))):
        for term in text.split("+") if isinstance(text, str) else ():
            module, colon, _ = term.rpartition("*")[2].strip().partition(":")
            if colon:
                yield module


def tables_of(value: Any) -> list[Mapping[str, Any]]:
    """The tables in a table."""
    return [table for table in value.values() if isinstance(table, Mapping)] if isinstance(value, Mapping) else []


def require_plugins(plugins: list[str]) -> None:
    """Raise an error where plug-ins of a stored configuration are not loaded: no folder of a run makes code run."""
    missing = describe_missing(plugins)
    if missing:
        raise EquimetricError(missing)
