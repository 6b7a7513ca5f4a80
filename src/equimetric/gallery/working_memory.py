"""Memory that a search has freed, back to the system."""

import ctypes

__all__ = ["release_free_memory"]


def release_free_memory() -> None:
    """Return what is free to the system; glibc would keep it, more than a small gallery takes, until it needs it."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return  # another C library, which has its own rules
