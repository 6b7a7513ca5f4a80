"""The start of an epoch: learner and samplers inspect the training set, then batches are loaded until the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from torch import Tensor

from equimetric.data import take_images
from equimetric.data.attributes import attribute_ids
from equimetric.evaluation import evaluate
from equimetric.learners import Batch, EpochView
from equimetric.learners.learner import Outputs
from equimetric.runs.embedding import apply_in_blocks
from equimetric.training.distributed import sync_batch_norm
from equimetric.training.loading import load_batches
from equimetric.training.session import Session

__all__ = ["continue_epoch", "start_epoch", "starts_epoch", "view_training_set"]


def starts_epoch(session: Session, step: int) -> bool:
    """Whether an epoch begins: after every validation, and where the learner asks for it."""
    return step % session.validate_every == 0 or step % session.period == 0


def start_epoch(session: Session, step: int) -> Iterator[Batch]:
    """Show the training set to the learner and its samplers; gives the batches until the next epoch."""
    learner = session.learner
    session.seed("epoch", step)
    sync_batch_norm(learner, session.processes)
    view = view_training_set(session)
    if step % session.period == 0:
        learner.on_epoch(view)
    session.batches.set_tasks()
    session.batches.refresh(view.embeddings, learner.groups())
    return continue_epoch(session, step)


def continue_epoch(session: Session, step: int) -> Iterator[Batch]:
    """The batches until the next epoch, after learner and samplers have seen the training set."""
    per_step = session.config.batch.per_step
    steps = min(
        steps_until_next(step, session.validate_every), steps_until_next(step, session.period), session.steps - step
    )
    return load_batches(session, first=step * per_step, n=steps * per_step)


def steps_until_next(step: int, period: int) -> int:
    """Steps to the next multiple of `period`."""
    return period - step % period


def view_training_set(session: Session) -> EpochView:
    """The training rows through the test view, computed on demand."""
    learner, processes, data = session.learner, session.processes, session.data
    images = data.images("train")

    def apply(function: Callable[[Tensor], Outputs], rows: Tensor | None) -> dict[str, Tensor]:
        chosen = images if rows is None else take_images(images, rows)
        return apply_in_blocks(learner, function, chosen, processes=processes)

    def score(embeddings: Tensor, labels: Tensor, metrics: Sequence[str]) -> dict[str, float]:
        return processes.broadcast(dict(evaluate(embeddings, labels, metrics=metrics)) if processes.is_main else {})

    return EpochView(
        learner,
        session.train_data.labels,
        partial(attribute_ids, session.train_data),
        session.state.history,
        apply,
        score,
    )
