"""Text in the cells of Markdown tables."""

import re

__all__ = ["cell"]


def cell(text: str) -> str:
    """Text in one line; a bar does not end the cell. In code it needs no backslash, and would show one."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else part.replace("|", "\\|") for part in parts)
