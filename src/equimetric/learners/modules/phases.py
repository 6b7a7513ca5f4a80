"""Periods between clusterings of the training set, and the joint phase that trains the whole embedding."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from equimetric.learners.learner import DelayedStart, LearnerFactory

__all__ = ["Phases"]


@dataclass(frozen=True)
class Phases:
    """A run cut into periods of `period` steps; from step `joint_from` on, always a period's first, it is joint."""

    period: int
    joint_from: float

    @classmethod
    def from_factory(cls, factory: LearnerFactory, period: int | None, joint: float) -> Phases:
        """Periods between clusterings, by default those between validations; the last `joint` of all steps is joint.

        The joint phase begins with the last period that leaves it this share or more, never with the first one.
        """
        period = period or factory.validate_every
        if joint == 0:
            return cls(period, inf)
        return cls(period, max(int((1 - joint) * factory.steps) // period, 1) * period)

    def delayed_start(self) -> DelayedStart:
        """The joint phase, for runs that end before it."""
        return DelayedStart("The joint phase", self.joint_from, "steps", "learner.options.joint")

    def is_joint(self, step: int) -> bool:
        """Whether a step belongs to the joint phase."""
        return step >= self.joint_from
