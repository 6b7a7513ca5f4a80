"""The spread of embeddings, and a warning when it falls to 0: a collapse, where all images look alike."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from equimetric.learners import Batch
from equimetric.training.session import Session

__all__ = ["BatchSpread", "measure_spread", "warn_on_collapse"]

COLLAPSE_RATIO = 0.1
"""Share of the spread at the start below which embeddings have collapsed."""

MIN_STEPS_BEFORE_COLLAPSE = 50
"""Steps before which nothing is called a collapse: large first steps and the young statistics of batch normalisation
squeeze embeddings for a moment."""


@torch.no_grad()
def measure_spread(embeddings: Tensor) -> float:
    """√(Σ‖e − ē‖² / Σ‖e‖²) of (N, D) embeddings: 0 where all are equal, 1 where they have no common direction.

    For unit-length embeddings it is √(1 − mean cosine of all pairs). It does not change with their scale.
    """
    rows = embeddings.detach().double()
    size = rows.square().sum()
    return 0.0 if size == 0 else float(((rows - rows.mean(0)).square().sum() / size).sqrt())


def warn_on_collapse(session: Session, images: str, spread: float) -> None:
    """Warn, once in a run, where the spread of some images has fallen far below that at the start."""
    state, config = session.state, session.config
    start = state.first_spread.setdefault(images, spread)
    if state.collapse or state.step < MIN_STEPS_BEFORE_COLLAPSE or not spread < COLLAPSE_RATIO * start:
        return
    state.collapse = (
        f"The embeddings collapsed: at step {state.step} the spread of {images} is {spread:.2g}, and it was "
        f"{start:.2g} at first, so all images look alike. Lower optimizer.lr (now {config.optimizer.lr:g}) or start "
        "it with optimizer.warmup_steps, choose a selection that is not the hardest, or a batch of more classes."
    )
    if session.processes.is_main:
        warnings.warn(f"{config.method}, seed {config.seed}: {state.collapse}", stacklevel=2)


class BatchSpread:
    """The spread of training batches: of the first, and of those whose step is logged."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.latest: float | None = None

    def observer(self, batch: Batch, step: int) -> Callable[[Tensor], None] | None:
        """Observer of a batch's embeddings: measures the spread, updates adaptive samplers; None if neither is due."""
        measures = step == 0 or self.session.logs(step + 1)
        adapts = self.session.batches.adapts
        if not measures and not adapts:
            return None

        def observe(embeddings: Tensor) -> None:
            if adapts:
                self.session.batches.observe(batch.task, embeddings)
            if measures:
                self.latest = measure_spread(embeddings)
                warn_on_collapse(self.session, "a training batch", self.latest)

        return observe

    def record(self) -> dict[str, float]:
        """Entries for the log line of the step."""
        return {} if self.latest is None else {"spread": self.latest}
