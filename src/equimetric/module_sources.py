"""Modules as the source that was executed: read with what they import from beside them, and imported from memory."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from equimetric.errors import EquimetricError
from equimetric.registry import REGISTRIES, loaded_plugins

__all__ = [
    "SCRIPT",
    "Source",
    "SourceFinder",
    "finder",
    "folder_of_imports",
    "is_installed",
    "is_own",
    "read_sources",
    "sources_of",
]

PACKAGE = __name__.partition(".")[0]
SCRIPT = "__main__"


def is_own(module: str) -> bool:
    """Whether a module is not of this package."""
    return module.partition(".")[0] != PACKAGE


@dataclass(frozen=True)
class Source:
    """The source of a module; a folder without `__init__.py` is an empty package."""

    name: str
    path: str
    text: str
    is_package: bool


class SourceLoader(InspectLoader):
    """Executes a source that is in memory."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def get_source(self, fullname: str) -> str:  # noqa: ARG002  (of the interface)
        """The source, for tracebacks."""
        return self.source.text

    def is_package(self, fullname: str) -> bool:  # noqa: ARG002
        """Whether the module may have others inside."""
        return self.source.is_package

    def exec_module(self, module: ModuleType) -> None:
        """Execute the source."""
        exec(compile(self.source.text, self.source.path, "exec"), module.__dict__)


class SourceFinder(MetaPathFinder):
    """Finds modules among sources in memory, before the files of `sys.path`."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """How a module is imported, where its source is here."""
        source = self.sources.get(name)
        if source is None:
            return None
        spec = ModuleSpec(name, SourceLoader(source), origin=source.path, is_package=source.is_package)
        spec.has_location = True
        if source.is_package:
            spec.submodule_search_locations = [str(Path(source.path).parent)]
        return spec

    def install(self, sources: Iterable[Source]) -> None:
        """Import these modules from here from now on; one imported from another source is imported anew."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        for source in sources:
            if self.sources.get(source.name) != source:
                self.remove([source.name])
                self.sources[source.name] = source

    def remove(self, names: Iterable[str]) -> None:
        """Forget modules and what they registered."""
        for name in names:
            self.sources.pop(name, None)
            sys.modules.pop(name, None)
            loaded_plugins.pop(name, None)
            for registry in REGISTRIES.values():
                registry.forget(name)


finder = SourceFinder()


def read_sources(name: str, root: Path, read: Callable[[str, Path], Source | None] | None = None) -> tuple[Source, ...]:
    """The source of a module below a folder, and of the modules beside it that it imports, directly or through others.

    Of an installed package only its own modules count. `read` gives the source of one module, by default from its file.
    """
    read = read or read_source
    found: dict[str, Source] = {}
    waiting = [name]
    while waiting:
        module = waiting.pop()
        is_foreign = is_installed(root) and module.partition(".")[0] != name.partition(".")[0]
        source = None if module in found or is_foreign else read(module, root)
        if source is not None:
            found[module] = source
            waiting += [module.rpartition(".")[0]] if "." in module else []
            waiting += imported_names(source)
    return tuple(found[module] for module in sorted(found))


def read_source(name: str, root: Path) -> Source | None:
    """The source of a module below a folder; None where there is none, or where it is of this package."""
    if not name or name.partition(".")[0] == PACKAGE:
        return None
    place = root.joinpath(*name.split("."))
    if place.with_suffix(".py").is_file() and not (place / "__init__.py").is_file():
        file, is_package = place.with_suffix(".py"), False
    else:
        file, is_package = place / "__init__.py", True
    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else None
    except (OSError, UnicodeDecodeError) as error:
        raise EquimetricError(f"the plug-in {str(file)!r} cannot be read: {error}") from None
    if text is None and not (place.is_dir() and any(place.glob("*.py"))):
        return None
    return Source(name, str(file), text or "", is_package)


def imported_names(source: Source) -> Iterator[str]:
    """The modules that a source may import, those in relative imports by their full name."""
    try:
        tree = ast.parse(source.text)
    except SyntaxError:  # importing it says so
        return
    package = source.name if source.is_package else source.name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*filter(None, parents), *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def is_installed(folder: Path) -> bool:
    """Whether a folder belongs to the interpreter or to installed packages."""
    return bool({"site-packages", "dist-packages"} & set(folder.parts)) or folder.is_relative_to(standard_library())


@cache
def standard_library() -> Path:
    """The folder of the standard library."""
    return Path(ast.__file__).parent


def folder_of_imports(module: ModuleType) -> Path | None:
    """The folder from which a module was imported; None where it is of no Python file."""
    file = getattr(module, "__file__", None)
    if file is None or not str(file).endswith(".py"):
        return None
    levels = len(module.__name__.split(".")) - (Path(file).name != "__init__.py")
    return Path(file).absolute().parents[levels]


_snapshots: dict[str, tuple[ModuleType, tuple[Source, ...]]] = {}


def sources_of(name: str) -> tuple[Source, ...]:
    """The sources of an imported module and of those it imports; empty where it is of no file.

    Read once: what is edited later has not been executed.
    """
    module = sys.modules.get(name)
    root = None if module is None or name == SCRIPT else folder_of_imports(module)
    if module is None or root is None:
        return ()
    known = _snapshots.get(name)
    if known is None or known[0] is not module:
        in_memory = (lambda module, _: finder.sources.get(module)) if name in finder.sources else None
        known = _snapshots[name] = (module, read_sources(name, root, in_memory))
    return known[1]
