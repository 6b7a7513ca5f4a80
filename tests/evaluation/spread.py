"""Scans read in pieces by copies of the task that went through bytes, and results compared by their bits."""

import os
import signal
import sys
from dataclasses import fields, is_dataclass
from unittest import mock

import numpy as np
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate
from equimetric.evaluation.parallel.packing import pack, unpack
from equimetric.evaluation.parallel.tasks import pack_task, unpack_task


def odd_ranges(bands):
    """One band, two, three, … of what is left: of all sizes, none of them empty."""
    ranges, start = [], 0
    while start < bands:
        ranges.append(range(start, min(bands, start + len(ranges) + 1)))
        start = ranges[-1].stop
    return ranges


def read_in_copies(task, advance):
    """Read odd ranges, each in a copy of its own, and merge what they read from the last to the first."""
    content, buffers = pack_task(task)
    buffers = [part.copy() for part in buffers]  # as they are before anything is merged
    for band_range in odd_ranges(len(task.plan.bands))[::-1]:
        copy = unpack_task(content, [part.copy() for part in buffers])
        copy.read(band_range, advance)
        partials, large = pack(copy.partials())
        task.merge(unpack(partials, [part.copy() for part in large]))


def identical(one, other):
    """Whether two results are the same, every bit of them."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) if not one.is_floating_point() else identical(one.numpy(), other.numpy())
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return np.float64(one).tobytes() == np.float64(other).tobytes()
    if is_dataclass(one):
        return all(identical(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(identical(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(identical, one, other))
    return bool(one == other)


def intervals(result):
    """The bootstrap interval of every metric that has one."""
    found = {}
    for name in result:
        try:
            interval = result.interval(name, draws=30)
        except EquimetricError:
            continue
        found[name] = (interval.low, interval.high)
    return found


def evaluate_in_pieces(*sets, **options):
    """As `evaluate`, its scan read in odd ranges."""
    module = sys.modules["equimetric.evaluation.evaluate"]
    with mock.patch.object(module, "choose_runner", return_value=read_in_copies):
        return evaluate(*sets, **options)


def die_in_workers(queries, references):
    """Measures in the process that says so, and ends every other, as the system does where memory is short."""
    if os.environ["EQUIMETRIC_TEST_PARENT"] != str(os.getpid()):
        os.kill(os.getpid(), signal.SIGKILL)
    return -torch.cdist(queries, references)
