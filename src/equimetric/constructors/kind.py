"""A kind of components: names, typed signatures, and constructors.

Both the modules of this package and their stubs are made from these.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import Parameter
from typing import Any, get_type_hints

from equimetric.errors import EquimetricError, did_you_mean, unnamed_option
from equimetric.other_names import KnownAs

__all__ = [
    "Kind",
    "Signature",
    "documentation",
    "keyword",
    "open_namespace",
    "options_of",
    "required_first",
    "typed_parameters",
]


@dataclass(frozen=True)
class Signature:
    """One way to call a constructor: its parameters and return type."""

    parameters: tuple[Parameter, ...]
    returns: Any


@dataclass(frozen=True)
class Kind:
    """Components of one kind.

    Attributes:
        name: of the module in this package.
        names: lists the components.
        signatures: name → the ways to call its constructor; more than one where options exclude each other.
        build: what a constructor does: `build(name, *arguments, **options)`.
        describe: name → docstring.
        room: the package of the same name, whose other public names the module exports, too.
        known_as: lists the names that components have elsewhere.

    """

    name: str
    names: Callable[[], Iterable[str]]
    signatures: Callable[[str], Sequence[Signature]]
    build: Callable[..., Any]
    describe: Callable[[str], str]
    room: str | None = None
    known_as: Callable[[], KnownAs] = dict


def open_namespace(kind: Kind) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module: constructors by name, then what the room of the same name has."""

    @cache
    def constructor(name: str) -> Callable[..., Any]:
        return make_constructor(kind, name)

    def find(name: str) -> Any:
        if not name.startswith("__") and name in set(kind.names()):
            return constructor(name)
        room = None if kind.room is None else import_module(kind.room)
        if not name.startswith("__") and hasattr(room, name):
            return getattr(room, name)
        advice = did_you_mean(name, kind.names(), kind.known_as())
        raise AttributeError(f"module 'equimetric.{kind.name}' has no attribute {name!r}; {advice}")

    def list_names() -> list[str]:
        return sorted(kind.names())

    return find, list_names


def make_constructor(kind: Kind, name: str) -> Callable[..., Any]:
    """The constructor of a component, with its signature and docstring."""
    first = kind.signatures(name)[0]
    signature = inspect.Signature(first.parameters, return_annotation=first.returns)

    def construct(*arguments: Any, **options: Any) -> Any:
        check_arguments(f"em.{kind.name}.{name}", signature, arguments, options)
        return kind.build(name, *arguments, **options)

    construct.__name__ = construct.__qualname__ = name
    construct.__module__ = f"equimetric.constructors.{kind.name}"
    construct.__doc__ = kind.describe(name)
    construct.__signature__ = signature  # type: ignore[attr-defined]
    return construct


def check_arguments(
    constructor: str, signature: inspect.Signature, arguments: Sequence[Any], options: Mapping[str, Any]
) -> None:
    """Raise an error for arguments that do not fit; what is built checks options that have no position itself."""
    if {parameter.kind for parameter in signature.parameters.values()} == {Parameter.KEYWORD_ONLY}:
        if arguments:
            raise unnamed_option(constructor, arguments[0], f"{constructor}({next(iter(signature.parameters))}=…)")
        return
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        plain = [parameter.replace(annotation=Parameter.empty) for parameter in signature.parameters.values()]
        raise EquimetricError(f"{constructor}: {error}; write {constructor}{inspect.Signature(plain)}") from None


def typed_parameters(function: Callable[..., Any]) -> list[Parameter]:
    """The parameters of a function, or of a class's constructor, with types in place of the text of annotations."""
    annotated = function.__init__ if inspect.isclass(function) else function
    hints = get_type_hints(annotated, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    return [parameter.replace(annotation=hints.get(parameter.name, Any)) for parameter in parameters]


def options_of(function: Callable[..., Any]) -> list[Parameter]:
    """The keyword-only parameters."""
    return [parameter for parameter in typed_parameters(function) if parameter.kind is Parameter.KEYWORD_ONLY]


def keyword(name: str, annotation: Any, default: Any = None) -> Parameter:
    """A keyword-only parameter."""
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def documentation(definition: Any) -> str:
    """The docstring of a component."""
    return inspect.getdoc(definition) or ""


def required_first(parameters: Iterable[Parameter]) -> list[Parameter]:
    """Parameters without a default before the others."""
    return sorted(parameters, key=lambda parameter: parameter.default is not Parameter.empty)
