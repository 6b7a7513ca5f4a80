"""A loss of the user's own on the command line: 'my_losses:gap'."""

from pathlib import Path

from equimetric.errors import EquimetricError

__all__ = ["load_methods"]


def load_methods(method: str) -> None:
    """Load the plug-ins of the terms 'module:name' of a method: files of the current folder, or modules."""
    from equimetric.plugins import find_plugin_object, is_loaded, load_plugins

    for term in method.split("+"):
        module, colon, attribute = term.rpartition("*")[2].strip().partition(":")
        if colon and not (module and attribute):
            raise EquimetricError(f"cannot find {term!r}; give module:name of a loss")
        if colon and not is_loaded(module):
            file = Path(f"{module}.py")
            try:
                load_plugins(file if file.is_file() else module)
                find_plugin_object(f"{module}:{attribute}")
            except EquimetricError as error:
                raise EquimetricError(f"cannot find {term.strip()!r}: {error}") from error
