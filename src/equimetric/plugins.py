"""Plug-ins by name: files, or modules that can be imported, whose decorators register components. Needs no torch."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

from equimetric.errors import EquimetricError, quote
from equimetric.module_sources import finder, is_installed, read_sources, sources_of
from equimetric.registry import import_modules, loaded_plugins

__all__ = [
    "describe_missing",
    "find_plugin_object",
    "find_plugins",
    "importing",
    "is_defined_in",
    "is_loaded",
    "load_plugins",
    "module_name",
    "require_importable_plugins",
]

_loading: list[str] = []


def find_plugins(names: Iterable[str | Path], folder: Path) -> list[str]:
    """Plug-ins as a configuration keeps them: the absolute path of a file, or the name of a module.

    Relative paths are those of a folder, or else of the current one.
    """
    found = []
    for name in map(str, names):
        if not is_file_name(name):
            found.append(name)
            continue
        candidates = [folder / name, Path(name)]
        file = next((file for file in candidates if file.is_file()), None)
        if file is None:
            raise EquimetricError(
                f"there is no plug-in {quote(name)}; give a file such as my_losses.py beside the configuration, or the "
                "name of a module that can be imported"
            )
        if file.suffix != ".py" or not file.stem.isidentifier():
            raise EquimetricError(f"the plug-in {quote(name)} cannot be imported; name it like my_losses.py")
        found.append(str(file.resolve()))
    return list(dict.fromkeys(found))


def is_file_name(name: str) -> bool:
    """Whether a plug-in is named by a file, not as a module."""
    return name.endswith(".py") or "/" in name or "\\" in name


def module_name(plugin: str) -> str:
    """The name under which a plug-in is imported."""
    return Path(plugin).stem if is_file_name(plugin) else plugin


def load_plugins(*names: str | Path, folder: str | Path = ".") -> None:
    """Import plug-ins: files, or modules that can be imported. What they register is found by name from then on.

    Loaded again, a file that has changed, or beside which a module that it imports has, is imported anew.
    """
    for plugin in find_plugins(names, Path(folder)):
        module = module_name(plugin)
        if not is_file_name(plugin):
            load_module(plugin, Path(folder))
        else:
            load_file(module, Path(plugin))
        loaded_plugins[module] = None


def load_module(name: str, folder: Path) -> None:
    """Import a module by name, also from a folder; of a package all modules directly inside."""
    with importing(name, folder):
        if hasattr(import_module(name), "__path__"):
            import_modules(name)


def load_file(name: str, file: Path) -> None:
    """Import a file as a module of its name, unless this very content has been imported."""
    sources = read_sources(name, file.parent)
    module = sys.modules.get(name)
    if module is not None:
        if name not in finder.sources and Path(getattr(module, "__file__", None) or "").resolve() != file:
            raise EquimetricError(
                f"the plug-in {str(file)!r} has the name of a module that is imported already; rename the file"
            )
        if sources_of(name) == sources:
            return
    elif is_installed_module(name) and not is_installed(file.parent):
        raise EquimetricError(f"the plug-in {str(file)!r} has the name of an installed module; rename the file")
    finder.remove([one.name for one in (*sources_of(name), *sources)])
    finder.install(sources)
    try:
        with importing(str(file), file.parent):
            import_module(name)
    except BaseException:
        finder.remove([source.name for source in sources])
        raise


def is_installed_module(name: str) -> bool:
    """Whether importing a name would import a module of the interpreter or of an installed package."""
    spec = find_spec(name)
    origin = None if spec is None else spec.origin
    return spec is not None and (origin is None or not Path(origin).is_file() or is_installed(Path(origin).parent))


@contextmanager
def importing(plugin: str, folder: Path) -> Iterator[None]:
    """Import with the modules of a folder first; an error says which plug-in it is of."""
    place = str(folder.resolve())
    invalidate_caches()
    sys.path.insert(0, place)
    _loading.append(plugin)
    try:
        yield
    except EquimetricError:
        raise
    except Exception as error:
        raise EquimetricError(
            f"the plug-in {quote(plugin)} cannot be imported: {type(error).__name__}: {error}; mend it or its name"
        ) from error
    finally:
        _loading.pop()
        sys.path.remove(place)
    if place not in sys.path:
        sys.path.append(place)  # for what it imports later


def require_importable_plugins(action: str) -> None:
    """Raise an error where a plug-in, while it is imported, starts what imports it."""
    if _loading:
        raise EquimetricError(
            f"the plug-in {quote(_loading[-1])} starts {action} while it is imported; put that below "
            "`if __name__ == '__main__':`, or the definitions into a file of their own"
        )


def missing_plugins(names: Sequence[str]) -> list[str]:
    """The plug-ins of a configuration that have not been loaded."""
    return [name for name in names if module_name(name) not in loaded_plugins]


def is_loaded(module: str) -> bool:
    """Whether a module has been loaded as a plug-in."""
    return module in loaded_plugins


def describe_missing(plugins: Sequence[str]) -> str:
    """Which plug-ins of a stored configuration are not loaded, and how to load them; '' where all are."""
    missing = missing_plugins(plugins)
    if not missing:
        return ""
    options = " ".join(f"--plugins {name}" for name in missing)
    return (
        f"it was trained with the plug-in {', '.join(missing)}, which is code that runs only where you name it: "
        f"equimetric {options} COMMAND, or em.load_plugins({', '.join(map(repr, missing))})"
    )


def find_plugin_object(name: str) -> Any:
    """The object 'module:name' of a plug-in that is loaded."""
    module, _, attribute = name.partition(":")
    if module not in loaded_plugins:
        raise EquimetricError(
            f"{quote(name)} is of a plug-in that is not loaded; name its file in `plugins` of the configuration, as "
            f"--plugins {module}.py, or in em.load_plugins('{module}.py')"
        )
    target = getattr(sys.modules[module], attribute, None)
    if target is None:
        defined = [key for key, value in vars(sys.modules[module]).items() if is_defined_in(value, module)]
        raise EquimetricError(
            f"the plug-in {module!r} has no {quote(attribute)}; it defines {', '.join(defined) or 'nothing'}"
        )
    return target


def is_defined_in(value: Any, module: str) -> bool:
    """Whether a function or class is defined in a module."""
    return isinstance(value, FunctionType | type) and value.__module__ == module
