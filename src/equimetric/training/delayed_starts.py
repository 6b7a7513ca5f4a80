"""Parts of a learner that begin only after the last step of a run: warned of before training and in the run's notes."""

from __future__ import annotations

import warnings
from math import inf

from equimetric.errors import EquimetricWarning
from equimetric.learners import DelayedStart, Learner
from equimetric.runs.configuration import RunConfig

__all__ = ["explain_delayed_starts", "warn_of_delayed_starts"]


def explain_delayed_starts(config: RunConfig, learner: Learner) -> list[str]:
    """A sentence for each part that takes no part in a run."""
    # The number of steps of a final model was chosen by its source.
    if not learner.trains or config.refit is not None:
        return []
    totals = {"batches": config.steps * config.batch.per_step, "steps": config.steps}
    rates = [
        DelayedStart("A lower learning rate", milestone, "steps", "optimizer.milestones")
        for milestone in config.optimizer.milestones
    ]
    return [
        f"{start.part} takes no part in this run: it begins after {start.first:,.0f} {start.unit} ({start.option}), "
        f"and the run has {totals[start.unit]:,}; lower {start.option}, or raise training.steps."
        for start in (*learner.delayed_starts(), *rates)
        # A part that is frozen for ever is frozen on purpose.
        if totals[start.unit] <= start.first < inf
    ]


def warn_of_delayed_starts(config: RunConfig, learner: Learner) -> None:
    """Warn of them before anything trains."""
    for sentence in explain_delayed_starts(config, learner):
        warnings.warn(f"{config.method}: {sentence}", EquimetricWarning, stacklevel=3)
