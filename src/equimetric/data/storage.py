"""Where derived data are kept."""

import os
from pathlib import Path

__all__ = ["cache_directory"]


def cache_directory() -> Path:
    """Where derived data are kept: $EQUIMETRIC_CACHE, or the user's cache folder of the operating system."""
    chosen = os.environ.get("EQUIMETRIC_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("equimetric")
