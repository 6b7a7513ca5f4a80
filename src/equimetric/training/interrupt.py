"""Stopping a run on a signal: a checkpoint between two steps, from which it resumes bit for bit.

Within an epoch more must be kept than after a validation: the sums behind the next line of the log, and the position
of every sampler among the batches that were used, which may be fewer than were drawn ahead (`TaskBatches`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from equimetric.stopping import Stopped, StopRequest
from equimetric.training.meter import LossMeter
from equimetric.training.session import Session

__all__ = ["stop_if_requested", "stop_request"]


@contextmanager
def stop_request(session: Session, meter: LossMeter) -> Iterator[StopRequest]:
    """Watch for signals while steps are taken, and restore the loss sums of a stopped run.

    Several processes would have to agree on a step and on their batch statistics; they stop at once instead, and
    resume after the last validation.
    """
    state = session.state
    meter.sums, meter.counts, state.sums, state.counts = state.sums, state.counts, {}, {}
    stop = StopRequest()
    if session.processes.is_distributed:
        yield stop
        return
    with stop.watch():
        yield stop
    if stop.number is not None:
        raise Stopped(stop.number)


def stop_if_requested(stop: StopRequest, session: Session, meter: LossMeter) -> None:
    """After a signal, write a checkpoint and raise `Stopped`."""
    if stop.number is None:
        return
    state = session.state
    meter.read()
    state.sums, state.counts = meter.sums, meter.counts
    session.save()
    raise Stopped(
        stop.number, f"stopped at step {state.step:,} of {session.steps:,}; run the same command again to resume"
    )
