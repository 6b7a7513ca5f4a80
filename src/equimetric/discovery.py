"""Imports every module of a room, so that the components in it register themselves."""

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules

__all__ = ["import_modules"]


def import_modules(package: str, path: Iterable[str]) -> None:
    """Import all modules directly inside a package."""
    for module in iter_modules(path):
        import_module(f"{package}.{module.name}")
