"""An engine by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from equimetric.errors import unknown_name
from equimetric.studies.engines.engine import Engine
from equimetric.studies.engines.local import LocalEngine
from equimetric.studies.engines.serial import SerialEngine

__all__ = ["ENGINES", "open_engine"]

ENGINES = ("local", "serial", "ray")


@contextmanager
def open_engine(name: str, slots: int) -> Iterator[Engine]:
    """The engine of a name, closed at the end; an error or interrupt lets its jobs stop after their current step."""
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    engine: Engine
    if name == "ray":
        from equimetric.studies.engines.ray_tasks import RayEngine

        engine = RayEngine(slots)
    else:
        engine = SerialEngine() if name == "serial" else LocalEngine(slots)
    try:
        yield engine
    except BaseException:
        engine.stop()
        raise
    finally:
        engine.close()
