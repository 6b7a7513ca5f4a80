"""The components of one's own that a configuration names, identified by their content, and sent to other processes.

What a decorator registers outside of this package belongs to a script or notebook, to a plug-in, or to a module that
these import. Worker processes get modules as the source that this process has executed, whatever has become of the
file, and definitions of a script or notebook by value. Needs no torch.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from equimetric.errors import EquimetricError
from equimetric.module_sources import Source, finder, is_own, sources_of
from equimetric.plugins import importing, is_defined_in, module_name
from equimetric.registry import REGISTRIES, Registry, import_modules, import_plugins, loaded_plugins
from equimetric.script_definitions import Definition

__all__ = ["OwnParts", "find_parts", "install_parts"]

NO_RESULT = ("command", "report section")
"""Kinds of components that no result of a run depends on."""


@dataclass(frozen=True)
class Part:
    """A component of one's own: its registry, its names, and the module that registered it."""

    registry: Registry[Any]
    name: str
    names: tuple[str, ...]
    module: str


@dataclass(frozen=True, eq=False)
class OwnParts:
    """What a configuration uses of one's own.

    Attributes:
        modules: modules to import: plug-ins that are declared, and those that register what is named.
        sources: their sources, and those of the modules beside them that they import.
        objects: components of a script or notebook, which no other process can import.
        contents: hash of the content of every module and of every object that is named, by name.
    """

    modules: tuple[str, ...]
    sources: tuple[Source, ...]
    objects: tuple[Part, ...]
    contents: Mapping[str, str]

    def digests(self) -> list[str]:
        """The contents without their names, for the key of a run: a file that is renamed keeps its results."""
        return sorted(set(self.contents.values()))

    def texts(self) -> dict[str, str]:
        """Name → text, of the modules that are named and of those that they import."""
        named = {source.name for module in self.contents for source in sources_of(module)}
        return {source.name: source.text for source in self.sources if source.name in named}

    def to_json(self) -> dict[str, Any]:
        """Plain values, to send to another process of the same installation."""
        if not self.modules and not self.objects:
            return {}
        packed = [
            {
                "kind": (part.registry.kind, part.registry.package),
                "name": part.name,
                "other_names": part.names[1:],
                "known_as": part.registry.known_as.get(part.name, ()),
                "module": part.module,
                "record": part.registry[part.name],
                "definition": (definition.texts, definition.modules),
            }
            for part, definition in ((part, definition_of(part)) for part in self.objects)
        ]
        return {
            "modules": list(self.modules),
            "sources": [asdict(source) for source in self.sources],
            "objects": base64.b64encode(pack(packed)).decode() if packed else "",
        }


def pack(value: Any) -> bytes:
    """Objects of a script by value."""
    import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise EquimetricError(
            f"what this script or notebook defines cannot be sent to other processes ({error}); put it into a file and "
            "name that in `plugins`"
        ) from error
    return content


def install_parts(values: Mapping[str, Any]) -> None:
    """Import and register what another process has sent by `OwnParts.to_json`."""
    if not values:
        return
    finder.install(Source(**source) for source in values["sources"])
    for module in values["modules"]:
        with importing(module, Path()):
            import_module(module)
        loaded_plugins[module] = None
    if values["objects"]:
        import cloudpickle

        for part in cloudpickle.loads(base64.b64decode(values["objects"])):
            kind, package = part["kind"]
            if package:
                import_modules(package)
            names = {name: part[name] for name in ("module", "other_names", "known_as")}
            REGISTRIES[kind, package].add(part["name"], part["record"], **names)
            _received[kind, part["name"]] = (part["record"], Definition(*part["definition"]))


def find_parts(config: Mapping[str, Any]) -> OwnParts:
    """The components of one's own that a configuration names, and those that their sources name in turn."""
    import_plugins()
    parts = list(own_parts())
    texts = [*texts_in({key: value for key, value in config.items() if key != "plugins"})]
    declared = [module_name(name) for name in config.get("plugins", ())]
    named = [module for module in loaded_plugins if any(names_object(text, module) for text in texts)]
    named += [module for module in declared if is_silent(module) and not any(part.module == module for part in parts)]
    chosen: list[Part] = []
    contents: dict[str, str] = {}
    sources: dict[str, Source] = {}

    def add_sources(name: str) -> tuple[Source, ...]:
        found = sources_of(name)
        sources.update({source.name: source for source in found})
        return found

    def add_module(name: str) -> None:
        found = add_sources(name)
        texts.extend(source.text for source in found)
        contents[name] = hash_texts(source.text for source in found)

    for name in declared:
        add_sources(name)

    for name in named:
        add_module(name)
    while new := [part for part in parts if part not in chosen and any(mentions(text, part) for text in texts)]:
        chosen += new
        for part in new:
            if sources_of(part.module):
                add_module(part.module)
            else:
                definition = definition_of(part)
                texts += definition.texts
                contents[part.name] = hash_texts(definition.texts)
                for module in sorted(definition.modules):
                    add_module(module)
    modules = dict.fromkeys(
        (
            *(name for name in declared if name in loaded_plugins),
            *named,
            *(part.module for part in chosen if sources_of(part.module)),
        )
    )
    objects = tuple(part for part in chosen if not sources_of(part.module))
    return OwnParts(tuple(modules), tuple(sources.values()), objects, contents)


def names_object(text: str, module: str) -> bool:
    """Whether a text names an object of a module, as 'module:name'."""
    return re.search(rf"(?<![\w.]){re.escape(module)}:\w", text) is not None


def is_silent(module: str) -> bool:
    """Whether a plug-in defines nothing that could be named; what else it does may concern every run."""
    loaded = sys.modules.get(module) if module in loaded_plugins else None
    return loaded is not None and not any(is_defined_in(value, module) for value in vars(loaded).values())


def own_parts() -> Iterator[Part]:
    """Every registered component that is not of this package."""
    for registry in list(REGISTRIES.values()):
        if registry.kind not in NO_RESULT:
            for name, names in registry.names_of(is_own).items():
                yield Part(registry, name, names, registry.module_of(name))


def texts_in(value: Any) -> Iterator[str]:
    """All text in the values of a configuration."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)


def mentions(text: str, part: Part) -> bool:
    """Whether a text has a name of a component as a word; of a name with parameters, such as 'recall@K', its stem."""
    return any(
        stem in text and re.search(rf"(?<!\w){re.escape(stem)}(?!\w)", text) is not None
        for stem in (re.split(r"[@=]", name)[0] for name in part.names)
    )


def hash_texts(texts: Iterable[str]) -> str:
    """Hash of texts in any order."""
    return hashlib.sha256("\0".join(sorted(texts)).encode()).hexdigest()[:16]


_received: dict[tuple[str, str], tuple[Any, Definition]] = {}
"""Kind and name of a component that another process has sent → its record and definition there."""


def definition_of(part: Part) -> Definition:
    """The definition of a component of a script: for one that was sent, that of the process which sent it."""
    record = part.registry[part.name]
    sent = _received.get((part.registry.kind, part.name))
    return sent[1] if sent is not None and sent[0] is record else Definition.of(record)
