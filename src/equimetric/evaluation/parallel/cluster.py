"""Ray tasks: each reads a range of bands on a machine of the cluster, and returns its partial results.

Embeddings in memory go into Ray's object store, once for every machine. Those that are mapped from a file stay there:
all machines must find it under the same path.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.scan import ScanTask
from equimetric.evaluation.parallel.packing import ALIGNMENT, Bytes, address, pack, unpack
from equimetric.evaluation.parallel.tasks import pack_task, unpack_task
from equimetric.ray_clusters import connect_ray
from equimetric.threads import use_threads

__all__ = ["read_bands", "run_on_ray"]

RANGES_PER_JOB = 4
"""Each returns all its counts, so there are fewer than on one machine."""
RETRIES = 2


def run_on_ray(task: ScanTask, advance: Callable[[int], None], *, jobs: int | None) -> None:
    """Read all bands in up to `jobs` tasks at a time, by default one for every CPU of the cluster, and merge them."""
    content, buffers = pack_task(task)
    with connect_ray(jobs) as ray:
        jobs = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
        pending = task.plan.split_bands(jobs * RANGES_PER_JOB)[::-1]
        offsets = [address(part) % ALIGNMENT for part in buffers]
        stored = [_store(ray, part, offset) for part, offset in zip(buffers, offsets, strict=True)]
        submit = ray.remote(num_cpus=1, max_retries=RETRIES)(read_bands).remote
        running: dict[Any, range] = {}
        try:
            while pending or running:
                while pending and len(running) < jobs:
                    band_range = pending.pop()
                    running[submit(content, band_range, offsets, *stored)] = band_range
                done, _ = ray.wait(list(running))
                task.merge(unpack(*_result(ray, done[0])))
                advance(task.plan.count_tiles(running.pop(done[0])))
        finally:
            for reference in running:
                with suppress(ray.exceptions.RayError):
                    ray.cancel(reference, force=True)


def _store(ray: Any, part: Bytes, offset: int) -> Any:
    """An array in the object store, where arrays begin at whole multiples of the alignment, after as many bytes.

    Zeros, such as empty tables of counts, need not travel: their number is enough.
    """
    if not part.any():
        return offset + len(part)
    return ray.put(np.concatenate([np.zeros(offset, np.uint8), part]) if offset else part)


def read_bands(
    content: bytes, band_range: range, offsets: list[int], *stored: Bytes | int
) -> tuple[bytes, list[Bytes]]:
    """What the collectors of a packed task read of a range of its bands, packed; `stored` begin at their offsets."""
    arrays = [np.zeros(part, np.uint8) if isinstance(part, int) else part for part in stored]
    task = unpack_task(content, [array[offset:] for array, offset in zip(arrays, offsets, strict=True)])
    with use_threads(1):
        task.run_in_worker(band_range, lambda _: None)
    return pack(task.partials())


def _result(ray: Any, task: Any) -> Any:
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (EquimetricError(str(cause)) if isinstance(cause, EquimetricError) else error) from None
    except ray.exceptions.RayError as error:
        first = str(error).strip().partition("\n")[0]
        raise EquimetricError(
            f"a Ray task ended without a result ({first}); was its process killed, or out of memory?"
        ) from None
