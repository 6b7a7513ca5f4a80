"""Validation: score the learner on classes of its own, keep the best weights, decide when to stop."""

from __future__ import annotations

from math import isnan

from equimetric.runs.evaluation import embed_part, evaluate_part
from equimetric.training.averaging import averaged_weights
from equimetric.training.checkpoint import copy_weights
from equimetric.training.distributed import sync_batch_norm
from equimetric.training.session import Session
from equimetric.training.sinks import Log

__all__ = ["out_of_patience", "validate"]


def validate(session: Session, log: Log) -> None:
    """Evaluate the validation classes, log the scores, and copy the weights where they are the best so far."""
    config, learner, state, processes = session.config, session.learner, session.state, session.processes
    sync_batch_norm(learner, processes)
    with averaged_weights(learner, state.average):
        found = embed_part(learner, session.data, "validation", processes)
        scores = dict(evaluate_part(found, config.evaluation)) if processes.is_main else {}
        scores = processes.broadcast(scores)
        record = {"kind": "validation", "step": state.step, **scores}
        log.write(record)
        state.history.append(record)
        value = scores[config.evaluation.selected_by]
        # The first scores are kept even where they are NaN, so that there always are weights to return.
        if state.best_weights is None or value > state.best_value or (isnan(state.best_value) and not isnan(value)):
            state.best_value, state.best_step, state.best_scores = value, state.step, scores
            state.best_weights = copy_weights(learner)
    plateau = config.optimizer.plateau_steps
    if plateau is not None and state.step - max(state.best_step, state.lowered_at) >= plateau:
        state.lowered, state.lowered_at = state.lowered + 1, state.step


def out_of_patience(session: Session, step: int) -> bool:
    """Whether, at a validation, the best one is too many steps back."""
    patience = session.config.training.patience
    return patience is not None and step % session.validate_every == 0 and step - session.state.best_step > patience
