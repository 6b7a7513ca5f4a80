"""Return memory freed by a search to the system."""

import ctypes

__all__ = ["release_free_memory"]


def release_free_memory() -> None:
    """Return free memory to the system; glibc would keep more of it than a small gallery takes."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return  # another C library, which has its own rules
