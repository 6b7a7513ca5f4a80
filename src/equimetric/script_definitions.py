"""What a function or class of a script or notebook consists of, for which there is no module to read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dis import get_instructions
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from equimetric.module_sources import SCRIPT, folder_of_imports, is_installed, is_own

__all__ = ["Definition"]

GLOBAL_NAMES = ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL")
"""Instructions whose names pickling by value takes along, too."""


class Definition:
    """What a function or class of a script consists of, with all of the script that it refers to.

    Attributes:
        texts: compiled functions, constants and values, as text.
        modules: modules beside the script that it uses.
    """

    def __init__(self, texts: Iterable[str] = (), modules: Iterable[str] = ()) -> None:
        self.texts = list(texts)
        self.modules = set(modules)
        self._seen: dict[int, Any] = {}

    @classmethod
    def of(cls, record: Any) -> Definition:
        """The definition behind the record of a component."""
        definition = cls()
        definition.add(record)
        return definition

    def add(self, value: Any) -> None:
        """Add a value and what it refers to."""
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value  # kept, so that no other value gets its id
        if isinstance(value, ModuleType):
            self.add_module(value.__name__)
        elif isinstance(value, FunctionType):
            self.add_function(value)
        elif isinstance(value, type):
            self.add_class(value)
        elif isinstance(value, staticmethod | classmethod):
            self.add(value.__func__)
        elif isinstance(value, MethodType):
            self.add((value.__func__, value.__self__))
        elif isinstance(value, partial):
            self.add((value.func, value.args, value.keywords))
        elif isinstance(value, property):
            for function in (value.fget, value.fset):
                self.add(function)
        elif isinstance(value, Mapping):
            for key in sorted(value, key=repr):
                self.texts.append(repr(key))
                self.add(value[key])
        elif isinstance(value, list | tuple):
            for item in value:
                self.add(item)
        elif isinstance(value, set | frozenset):
            self.texts.append(repr(sorted(value, key=repr)))
        elif value is None or isinstance(value, str | bytes | int | float | complex):
            self.texts.append(repr(value))
        else:
            self.add_object(value)

    def add_module(self, name: str) -> None:
        """Add a module, where it is beside the script."""
        module = sys.modules.get(name)
        root = None if module is None else folder_of_imports(module)
        if root is not None and not is_installed(root) and is_own(name) and name != SCRIPT:
            self.modules.add(name)

    def add_function(self, function: FunctionType) -> None:
        """Add a function with its defaults and the globals that it names, or the module that it is of."""
        if not is_by_value(function):
            self.add_module(function.__module__)
            return
        names = dict.fromkeys(self.add_code(function.__code__))
        for value in (function.__defaults__, function.__kwdefaults__):
            self.add(value)
        for cell in function.__closure__ or ():
            self.add(cell.cell_contents)
        for name in names:
            if name in function.__globals__:
                self.add(function.__globals__[name])

    def add_code(self, code: CodeType) -> Iterable[str]:
        """Add what a function executes, without the lines it stands in; gives the names it looks up."""
        constants = [one for one in code.co_consts if not isinstance(one, CodeType)]
        shown = [repr(sorted(one, key=repr)) if isinstance(one, frozenset) else repr(one) for one in constants]
        self.texts.append(repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars, shown)))
        # Words of their own, for names of other components among them.
        self.texts += [one for one in constants if isinstance(one, str)]
        names = [one.argval for one in get_instructions(code) if one.opname in GLOBAL_NAMES]
        for one in code.co_consts:
            if isinstance(one, CodeType):
                names += self.add_code(one)
        return names

    def add_class(self, kind: type) -> None:
        """Add a class with its bases and what stands in it, or the module that it is of."""
        if not is_by_value(kind):
            self.add_module(kind.__module__)
            return
        for base in kind.__bases__:
            self.add(base)
        for name, value in sorted(vars(kind).items()):
            if name not in ("__dict__", "__weakref__", "__module__", "__firstlineno__", "_abc_impl"):
                self.texts.append(name)
                self.add(value)

    def add_object(self, value: Any) -> None:
        """Add an object with its class and its attributes, or the values of an array."""
        self.add(type(value))
        attributes = getattr(value, "__dict__", None)
        if attributes:
            self.add(attributes)
        elif hasattr(value, "tolist"):
            self.texts.append(repr(value.tolist()))


def is_by_value(definition: Any) -> bool:
    """Whether a function or class is of a script or notebook, or of another module that cannot be imported."""
    module = sys.modules.get(definition.__module__)
    return definition.__module__ == SCRIPT or module is None or getattr(module, "__spec__", None) is None
