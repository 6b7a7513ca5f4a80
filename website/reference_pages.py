"""The API reference: a page for each room, its public names from `__all__`, their docstrings by mkdocstrings."""

from importlib import import_module

import equimetric

__all__ = ["reference_pages"]

ROOMS = (
    "objectives",
    "components",
    "pairs",
    "geometry",
    "ops",
    "explain",
    "evaluation",
    "calibration",
    "gallery",
    "deployment",
    "training",
    "studies",
    "learners",
    "data",
    "batches",
    "backbones",
    "published",
    "protocols",
    "report",
    "search_space",
    "errors",
)


def reference_pages() -> dict[str, tuple[str, str]]:
    """The names of the package itself, then room by room."""
    rooms = {f"reference/{room}.md": (room, room_page(room)) for room in ROOMS}
    return {"reference/index.md": ("API reference", index_page()), **rooms}


def index_page() -> str:
    """The names of `equimetric` itself, with their first lines and the room that explains them."""
    lines = [
        "# API reference",
        "",
        "What `import equimetric as em` offers. Rooms on the left have further public names; nothing else is promised"
        " to stay.",
        "",
        "| name | what it is | room |",
        "|---|---|---|",
    ]
    for name in sorted(equimetric.__all__, key=str.lower):
        room = home(name)
        link = f"[{room}]({room}.md)" if room in ROOMS else f"`{room}`"
        lines.append(f"| `em.{name}` | {first_line(name)} | {link} |")
    return "\n".join(lines) + "\n"


def home(name: str) -> str:
    """The room of a public name of the package."""
    value = getattr(equimetric, name)
    module = getattr(value, "__module__", "")
    return module.split(".")[1] if module.startswith("equimetric.") and not isinstance(value, dict) else "components"


def first_line(name: str) -> str:
    """What a name is, in one line."""
    value = getattr(equimetric, name)
    kind = type(value).__name__ if not callable(value) else ""
    text = f"the {kind} of all that are known" if kind else (value.__doc__ or "").strip().split("\n")[0]
    return text.replace("|", "\\|")


def room_page(room: str) -> str:
    """The docstring of a room, and every public name of it."""
    module = import_module(f"equimetric.{room}")
    about = (module.__doc__ or "").strip()
    names = [name for name in getattr(module, "__all__", ()) if is_documented(getattr(module, name))]
    entries = [f"::: {path(getattr(module, name), room, name)}" for name in names]
    return f"# equimetric.{room}\n\n{about}\n\n" + "\n\n".join(entries) + "\n"


def is_documented(value: object) -> bool:
    """Whether a name is a function or class of this package; tables and constants are shown by their users."""
    return callable(value) and str(getattr(value, "__module__", "")).startswith("equimetric")


def path(value: object, room: str, name: str) -> str:
    """Where a name is defined."""
    return f"{getattr(value, '__module__', f'equimetric.{room}')}.{getattr(value, '__name__', name)}"
