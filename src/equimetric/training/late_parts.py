"""Parts of what is learned that begin only after the last step of a run: said before it trains, and in its notes."""

from __future__ import annotations

import warnings
from math import inf

from equimetric.errors import EquimetricWarning
from equimetric.learners import LatePart, Learner
from equimetric.runs.configuration import RunConfig

__all__ = ["explain_late_parts", "warn_of_late_parts"]


def explain_late_parts(config: RunConfig, learner: Learner) -> list[str]:
    """A sentence for each part that takes no part in a run."""
    # The steps of a final model are those that its source has chosen.
    if not learner.trains or config.refit is not None:
        return []
    numbers = {"batches": config.steps * config.batch.per_step, "steps": config.steps}
    rates = [
        LatePart("A lower learning rate", milestone, "steps", "optimizer.milestones")
        for milestone in config.optimizer.milestones
    ]
    return [
        f"{part.what} takes no part in this run: it begins after {part.first:,.0f} {part.unit} ({part.option}), and "
        f"the run has {numbers[part.unit]:,}; lower {part.option}, or raise training.steps."
        for part in (*learner.late_parts(), *rates)
        # What is frozen for ever is so on purpose.
        if numbers[part.unit] <= part.first < inf
    ]


def warn_of_late_parts(config: RunConfig, learner: Learner) -> None:
    """Say so before anything trains."""
    for sentence in explain_late_parts(config, learner):
        warnings.warn(f"{config.method}: {sentence}", EquimetricWarning, stacklevel=3)
