"""One registry for every kind of component: a decorator in the component's own file, found by discovery.

Losses, selections, references, batches, data sets, backbones, heads, metrics, learners, report sections and commands
are all registered this way, so adding one is adding one file. Needs no torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from inspect import Parameter
from pathlib import Path
from pkgutil import iter_modules
from threading import RLock
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from equimetric.errors import EquimetricError, unknown_name
from equimetric.search_space import Choice, Integer, LogUniform, Uniform

__all__ = ["PLUGINS", "REGISTRIES", "Declaration", "Registry", "read_declarations", "read_options"]

Record = TypeVar("Record")
Definition = TypeVar("Definition", bound=Callable[..., Any])

PLUGINS = "equimetric.plugins"
"""Entry-point group of packages whose modules register components of their own."""

REGISTRIES: WeakValueDictionary[tuple[str, str], Registry[Any]] = WeakValueDictionary()
"""Every registry by kind and package."""

_lock = RLock()


class Registry(Mapping[str, Record], Generic[Record]):
    """Records of one kind by name, in order of registration.

    Every module directly inside `package` is imported before the first look-up that needs it, and with the first
    discovery of any registry every installed plug-in; importing a module runs its decorators, which register.
    With `decorator`, only those modules of plug-ins are imported that use it, for kinds that must not load torch.
    """

    def __init__(self, kind: str, package: str, *, decorator: str | None = None) -> None:
        self.kind = kind
        self.package = package
        self.decorator = decorator
        self._records: dict[str, Record] = {}
        self._modules: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._known_as: dict[str, tuple[str, ...]] = {}
        self._discovered = False
        REGISTRIES[kind, package] = self

    def add(
        self, name: str, record: Record, *, module: str, other_names: Iterable[str] = (), known_as: Iterable[str] = ()
    ) -> None:
        """Register a record that `module` defines, under its name and under other names for it.

        `known_as` are names elsewhere, of other libraries say, for which an error suggests this one. Reloading a
        module replaces its records; a name that another module has taken raises an error.
        """
        for alias in (name, *other_names):
            owner = self._aliases.get(alias, alias)
            if self._modules.get(owner, module) != module:
                raise EquimetricError(f"there is a {self.kind} named {alias!r} already; choose another name")
        self._records[name] = record
        self._modules[name] = module
        self._aliases |= dict.fromkeys(other_names, name)
        self._known_as[name] = tuple(known_as)

    def register(
        self, name: str, *, other_names: Iterable[str] = (), known_as: Iterable[str] = ()
    ) -> Callable[[Definition], Definition]:
        """Decorator for kinds whose record is the definition itself, a class or a function."""

        def decorate(definition: Definition) -> Definition:
            record: Any = definition
            self.add(name, record, module=definition.__module__, other_names=other_names, known_as=known_as)
            return definition

        return decorate

    def forget(self, module: str) -> None:
        """Forget what a module registered, before it is imported anew."""
        for name in [name for name, owner in self._modules.items() if owner == module]:
            del self._records[name], self._modules[name], self._known_as[name]
            self._aliases = {alias: owner for alias, owner in self._aliases.items() if owner != name}

    def names_of(self, modules: Callable[[str], bool]) -> dict[str, tuple[str, ...]]:
        """Name → all its names, of the records of modules that pass a test; imports nothing."""
        return {
            name: (name, *(alias for alias, owner in self._aliases.items() if owner == name))
            for name, module in self._modules.items()
            if modules(module)
        }

    def module_of(self, name: str) -> str:
        """The module that registered a name."""
        return self._modules[name]

    def find(self, name: str) -> Record:
        """The record of any of its names; a misspelt name raises an error that gives the nearest."""
        record = self.get(name)
        if record is None:
            raise unknown_name(self.kind, name, self, self.known_as)
        return record

    @property
    def known_as(self) -> Mapping[str, tuple[str, ...]]:
        """The names of each record elsewhere."""
        self.discover()
        return self._known_as

    def discover(self) -> None:
        """Import every module of the package, and every plug-in, once."""
        with _lock:
            if self._discovered:
                return
            # Set first: modules may look something up while they are being imported.
            self._discovered = True
            try:
                if self.package:
                    import_modules(self.package)
                if self.decorator is None:
                    import_plugins()
                else:
                    import_declaring_plugins(self.decorator)
            except BaseException:
                # A part of the components would pass for all of them.
                self._discovered = False
                raise

    def __getitem__(self, name: str) -> Record:
        if name not in self._records and name not in self._aliases:
            self.discover()
        return self._records[self._aliases.get(name, name)]

    def __iter__(self) -> Iterator[str]:
        self.discover()
        return iter(self._records)

    def __len__(self) -> int:
        self.discover()
        return len(self._records)

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}, {list(self)})"


def import_modules(package: str) -> None:
    """Import all modules directly inside a package."""
    for module in iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")


loaded_plugins: dict[str, None] = {}
"""Modules that a configuration or the caller has named as plug-ins, in order."""

_plugins_imported = False


def import_plugins() -> None:
    """Import every installed plug-in once: the module an entry point names, or a package with all its modules."""
    global _plugins_imported
    if _plugins_imported:
        return
    for plugin in entry_points(group=PLUGINS):
        with _explain_import_errors(plugin.name):
            if hasattr(import_module(plugin.module), "__path__"):
                import_modules(plugin.module)
    _plugins_imported = True


def import_declaring_plugins(decorator: str) -> None:
    """Import those modules of installed plug-ins whose source uses `@decorator(…)`, and no others."""
    for plugin in entry_points(group=PLUGINS):
        with _explain_import_errors(plugin.name):
            for module in dict.fromkeys(
                declaration.module for declaration in _declarations_in(plugin.module, decorator)
            ):
                import_module(module)


@contextmanager
def _explain_import_errors(plugin: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise EquimetricError(f"the plug-in {plugin!r} cannot be imported: {error}; uninstall it") from error


@dataclass(frozen=True)
class Declaration:
    """The record of a component as declared in its source.

    Attributes:
        name: the first argument of the decorator.
        module: the module that declares it.
        keywords: the decorator's keywords, as far as they are literals or search ranges.
        options: keyword-only parameters of the function, or of the class's own constructor, with their defaults:
            `inspect.Parameter.empty` where there is none, the source text where it is no literal.
        docstring: of the function or class.
        decorators: the source text of all its decorators.

    """

    name: str
    module: str
    keywords: Mapping[str, Any]
    options: Mapping[str, Any]
    docstring: str
    decorators: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.docstring.partition("\n")[0].rstrip(".")


def read_declarations(package: str, decorator: str) -> list[Declaration]:
    """Components that a package declares by `@decorator("name", …)`, read from its source without importing it.

    Answers in a fraction of a second, where importing would load torch. Those of installed plug-ins follow, then those
    of modules that have been loaded as plug-ins.
    """
    sources = dict.fromkeys((package, *(plugin.module for plugin in entry_points(group=PLUGINS)), *loaded_plugins))
    return [declaration for source in sources for declaration in _declarations_in(source, decorator)]


def read_options(module: str, definition: str, function: str) -> dict[str, Any]:
    """Keyword-only parameters of a function of a class, with their defaults as in a `Declaration`; from source."""
    spec = find_spec(module.partition(".")[0])
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    (class_node,) = (node for node in nodes if isinstance(node, ast.ClassDef) and node.name == definition)
    return {key: _default(value) for key, value in _keyword_only(class_node, function)}


def _declarations_in(name: str, decorator: str) -> Iterator[Declaration]:
    """The declarations in a module, or in the modules directly inside a package."""
    spec = find_spec(name)
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        files = {name: Path(spec.origin)} if spec.origin and spec.origin.endswith(".py") else {}
    else:
        folders = map(Path, spec.submodule_search_locations)
        files = {f"{name}.{file.stem}": file for folder in folders for file in sorted(folder.glob("*.py"))}
    for module, file in files.items():
        source = file.read_text(encoding="utf-8")
        if re.search(rf"^@(\w+\.)*{decorator}\(", source, re.MULTILINE):
            yield from _read_module(module.removesuffix(".__init__"), file, ast.parse(source), decorator)


def _read_module(module: str, file: Path, tree: ast.Module, decorator: str) -> Iterator[Declaration]:
    constants = _constants(module.rpartition(".")[0], file, tree)

    def resolve(value: ast.expr) -> ast.expr:
        return constants.get(getattr(value, "id", ""), value)

    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and decorator in (getattr(call.func, key, None) for key in ("id", "attr")):
                name, *_ = (argument.value for argument in call.args if isinstance(argument, ast.Constant))
                keywords = {keyword.arg: resolve(keyword.value) for keyword in call.keywords if keyword.arg}
                literals = {key: result[0] for key, value in keywords.items() if (result := _evaluate(value))}
                options = {key: _default(value and resolve(value)) for key, value in _keyword_only(node)}
                decorators = tuple(map(ast.unparse, node.decorator_list))
                yield Declaration(str(name), module, literals, options, ast.get_docstring(node) or "", decorators)


def _constants(package: str, file: Path, tree: ast.Module) -> dict[str, ast.expr]:
    """Expressions that a module assigns to names, and constants imported from a sibling module."""
    constants: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.rpartition(".")[0] == package:
            names = {alias.name for alias in node.names if alias.name.isupper()}
            sibling = file.with_name(f"{node.module.rpartition('.')[2]}.py")
            if names and sibling.exists():
                imported = _constants(package, sibling, ast.parse(sibling.read_text(encoding="utf-8")))
                constants |= {name: value for name, value in imported.items() if name in names}
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            constants |= {target.id: node.value for target in targets if isinstance(target, ast.Name)}
    return constants


def _keyword_only(
    node: ast.FunctionDef | ast.ClassDef, method: str = "__init__"
) -> Iterator[tuple[str, ast.expr | None]]:
    functions = node.body if isinstance(node, ast.ClassDef) else [node]
    for function in functions:
        if isinstance(function, ast.FunctionDef) and (function is node or function.name == method):
            for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
                yield argument.arg, default


def _default(value: ast.expr | None) -> Any:
    if value is None:
        return Parameter.empty
    result = _evaluate(value)
    return result[0] if result else ast.unparse(value)


SEARCH_RANGES = {kind.__name__: kind for kind in (Choice, Integer, LogUniform, Uniform)}


def _evaluate(node: ast.expr) -> tuple[Any] | None:
    """The value of a literal, of a search range, or of a dictionary of these; None for any other expression."""
    if isinstance(node, ast.Dict):
        entries = [
            (key and _evaluate(key), _evaluate(value)) for key, value in zip(node.keys, node.values, strict=True)
        ]
        return ({key[0]: value[0] for key, value in entries if key and value},) if all(map(all, entries)) else None
    if isinstance(node, ast.Call):
        kind = SEARCH_RANGES.get(getattr(node.func, "id", ""))
        values = [_evaluate(argument) for argument in node.args]
        return (kind(*(value[0] for value in values if value)),) if kind and all(values) else None
    try:
        return (ast.literal_eval(node),)
    except ValueError:
        return None
