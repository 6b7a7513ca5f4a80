"""Validation: score the learner on classes of its own, keep the best weights, decide when to stop."""

from __future__ import annotations

from math import isnan

from equimetric.runs.evaluation import embed_part, evaluate_part, within_parents
from equimetric.training.averaging import averaged_weights
from equimetric.training.checkpoint import Checkpoint, copy_weights
from equimetric.training.distributed import sync_batch_norm
from equimetric.training.finite import require_finite_weights
from equimetric.training.session import Session
from equimetric.training.sinks import Log
from equimetric.training.spread import measure_spread, notice_collapse

__all__ = ["count_plateau", "is_best", "out_of_patience", "validate"]


def validate(session: Session, log: Log) -> None:
    """Evaluate the validation classes, log the scores, and copy the weights where they are the best so far.

    A final model has no validation classes: its source has chosen the last step, and where rates are lowered.
    """
    config, learner, state = session.config, session.learner, session.state
    require_finite_weights(learner, state.step)
    sync_batch_norm(learner, session.processes)
    with averaged_weights(learner, state.average):
        if config.refit is not None:
            state.best_step, state.best_weights = state.step, copy_weights(learner)
            state.lowered = sum(step <= state.step for step in config.refit.lowered_at)
        else:
            scores = score(session, log)
            value = scores[config.evaluation.selected_by]
            if is_best(state, value):
                state.best_value, state.best_step, state.best_scores = value, state.step, scores
                state.best_weights = copy_weights(learner)
            count_plateau(state, config.optimizer.plateau_steps)


def score(session: Session, log: Log) -> dict[str, float]:
    """The scores of the validation classes, logged with the spread of their embeddings."""
    state, processes = session.state, session.processes
    found = embed_part(session.learner, session.data, "validation", processes)
    found = within_parents(found, session.data, session.config.evaluation.parents)
    scores = dict(evaluate_part(found, session.config.evaluation)) if processes.is_main else {}
    scores = processes.broadcast(scores)
    spread = measure_spread(found.embeddings)
    record = {"kind": "validation", "step": state.step, **scores, "spread": spread}
    log.write(record)
    state.history.append(record)
    notice_collapse(session, "the validation images", spread)
    return scores


def is_best(state: Checkpoint, value: float) -> bool:
    """Whether a validation value is better than all before."""
    # The first scores are kept even where they are NaN, so that there always are weights to return.
    return state.best_weights is None or value > state.best_value or (isnan(state.best_value) and not isnan(value))


def count_plateau(state: Checkpoint, plateau: int | None) -> None:
    """Count one more plateau where neither a better validation nor a plateau lies within the last `plateau` steps."""
    if plateau is not None and state.step - max(state.best_step, state.lowered_at) >= plateau:
        state.lowered, state.lowered_at = state.lowered + 1, state.step


def out_of_patience(session: Session, step: int) -> bool:
    """Whether, at a validation, the best one is too many steps back."""
    patience = session.config.training.patience
    return patience is not None and step % session.validate_every == 0 and step - session.state.best_step > patience
