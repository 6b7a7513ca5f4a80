"""Ray clusters: the one that is connected, that of RAY_ADDRESS, or one that is started on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from equimetric.errors import EquimetricError
from equimetric.extras import import_extra

__all__ = ["connect_ray"]


@contextmanager
def connect_ray(cpus: int | None) -> Iterator[Any]:
    """Yield the `ray` module connected to a cluster; a cluster started here gets `cpus` CPUs, all by default.

    A connection that was made here ends here.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_extra("ray", "the engine 'ray'", "ray", "ray", "choose the engine 'local'")
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {} if address else {"num_cpus": cpus, "include_dashboard": False}
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", **options)
    except ConnectionError as error:
        first_line = str(error).strip().partition("\n")[0]
        raise EquimetricError(f"there is no Ray cluster at {address!r}: {first_line}") from None
    try:
        yield ray
    finally:
        ray.shutdown()
