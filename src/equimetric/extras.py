"""Optional packages: imported when they are needed, with an error that says how to get them."""

from importlib import import_module
from typing import Any

from equimetric.errors import EquimetricError

__all__ = ["import_extra"]


def import_extra(module: str, what: str, package: str, extra: str, otherwise: str = "leave it out") -> Any:
    """A module of an optional package; `what` needs it, and `otherwise` is what to do without it."""
    try:
        return import_module(module)
    except ImportError:
        raise EquimetricError(
            f"{what} needs the package {package!r}, which is not installed; run: pip install 'equimetric[{extra}]', or "
            f"{otherwise}"
        ) from None
