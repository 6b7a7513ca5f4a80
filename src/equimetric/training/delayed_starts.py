"""Parts of what is learned that begin only after the last step of a run: said before it trains, and in its notes."""

from __future__ import annotations

import warnings
from math import inf

from equimetric.errors import EquimetricWarning
from equimetric.learners import DelayedStart, Learner
from equimetric.runs.configuration import RunConfig

__all__ = ["explain_delayed_starts", "warn_of_delayed_starts"]


def explain_delayed_starts(config: RunConfig, learner: Learner) -> list[str]:
    """A sentence for each part that takes no part in a run."""
    # The steps of a final model are those that its source has chosen.
    if not learner.trains or config.refit is not None:
        return []
    numbers = {"batches": config.steps * config.batch.per_step, "steps": config.steps}
    rates = [
        DelayedStart("A lower learning rate", milestone, "steps", "optimizer.milestones")
        for milestone in config.optimizer.milestones
    ]
    return [
        f"{part.what} takes no part in this run: it begins after {part.first:,.0f} {part.unit} ({part.option}), and "
        f"the run has {numbers[part.unit]:,}; lower {part.option}, or raise training.steps."
        for part in (*learner.delayed_starts(), *rates)
        # What is frozen for ever is so on purpose.
        if numbers[part.unit] <= part.first < inf
    ]


def warn_of_delayed_starts(config: RunConfig, learner: Learner) -> None:
    """Say so before anything trains."""
    for sentence in explain_delayed_starts(config, learner):
        warnings.warn(f"{config.method}: {sentence}", EquimetricWarning, stacklevel=3)
