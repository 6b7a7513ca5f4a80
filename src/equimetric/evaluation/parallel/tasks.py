"""The task of a scan for other processes: its bytes and its large arrays."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.scan import ScanTask
from equimetric.evaluation.families import METRICS
from equimetric.evaluation.parallel.packing import Bytes, pack, script_error, unpack

__all__ = ["pack_task", "unpack_task"]


def pack_task(task: ScanTask) -> tuple[bytes, list[Bytes]]:
    """The task as it is before its first tile; an error where several processes cannot share it."""
    if task.matrix.device.type != "cpu":
        raise EquimetricError(
            f"several processes compute on the CPU, and the embeddings are on {task.matrix.device}; move them there, "
            "or use one process"
        )
    for collector in task.collectors:
        if not collector.can_merge():
            names = ", ".join(metric.name for metric in collector.metrics) or type(collector).__name__
            raise EquimetricError(f"{names} cannot be computed in pieces; leave it out, or use one process")
    if task.plan.coarse:
        task.matrix.bfloat16_copies()  # once for all processes
    return pack((_metric_modules(task), task), [task.matrix, [collector.sets for collector in task.collectors]])


def unpack_task(content: bytes | bytearray, buffers: Sequence[Any]) -> ScanTask:
    """The task, as another process has packed it."""
    modules, task = unpack(content, buffers)
    assert isinstance(task, ScanTask)
    for module in modules:
        import_module(module)
    return task


def _metric_modules(task: ScanTask) -> list[str]:
    """The modules that register the metrics; other processes have not imported them yet."""
    metrics = [metric for collector in task.collectors for metric in collector.metrics]
    modules = {METRICS[metric.family].score.__module__: metric.name for metric in metrics}
    if "__main__" in modules:
        raise EquimetricError(script_error(modules["__main__"]))
    return sorted(modules)
