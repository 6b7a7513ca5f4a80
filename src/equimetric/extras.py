"""Optional packages: imported when they are needed, with an error that says how to get them."""

from importlib import import_module
from typing import Any

from equimetric.errors import EquimetricError

__all__ = ["import_extra"]


def import_extra(module: str, feature: str, package: str, extra: str, alternative: str = "leave it out") -> Any:
    """Import a module of an optional package; `feature` needs it, `alternative` is what to do without it."""
    try:
        return import_module(module)
    except ImportError:
        raise EquimetricError(
            f"{feature} needs the package {package!r}, which is not installed; run: pip install 'equimetric[{extra}]', "
            f"or {alternative}"
        ) from None
