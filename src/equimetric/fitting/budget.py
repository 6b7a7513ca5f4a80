"""A time budget: time left, reserve for the end, and stopping a stage that would take too long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from equimetric.errors import EquimetricError
from equimetric.progress import format_seconds

__all__ = ["Budget"]

MIN_RESERVE_SECONDS, RESERVED_SHARE = 45.0, 0.2
"""Seconds, or share of the budget, for what follows the search: the last training, calibration, export, report."""


@dataclass(frozen=True)
class Budget:
    """A time budget that starts now.

    Attributes:
        seconds: the budget.
        clock: seconds that only grow.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise EquimetricError(f"a time budget of {self.seconds / 60:g} minutes leaves no time; give more --minutes")
        object.__setattr__(self, "began", self.clock())

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.began

    @property
    def reserve(self) -> float:
        """Seconds reserved for the end."""
        return max(MIN_RESERVE_SECONDS, RESERVED_SHARE * self.seconds)

    @property
    def left(self) -> float:
        """Seconds before the end begins; below 0 where it should have begun."""
        return self.seconds - self.reserve - self.spent

    def describe(self) -> str:
        """'2 min of 10 min used, 8 min left'."""
        remaining = max(0.0, self.seconds - self.spent)
        return f"{format_seconds(self.spent)} of {format_seconds(self.seconds)} used, {format_seconds(remaining)} left"

    def require(self, seconds: float, task: str) -> None:
        """Raise an error, before a slow task begins, where it would exceed the budget."""
        if seconds > self.left:
            needed = (self.spent + seconds) / (1 - RESERVED_SHARE) + MIN_RESERVE_SECONDS
            raise EquimetricError(
                f"{task} take about {format_seconds(seconds)}, more than fits into {self.seconds / 60:g} minutes; "
                f"give --minutes {int(needed / 60) + 1} or more"
            )

    @contextmanager
    def stop_in_time(self, network: nn.Module, task: str) -> Iterator[None]:
        """Stop a network between two batches when the time is up; results on disk are kept."""

        def check(*_: Any) -> None:
            if self.left < 0:
                raise EquimetricError(
                    f"{task} are not finished, and {format_seconds(self.spent)} of {self.seconds / 60:g} minutes are "
                    "used; what is done is kept: run the same command again, or give more --minutes"
                )

        hook = network.register_forward_pre_hook(check)
        try:
            yield
        finally:
            hook.remove()
