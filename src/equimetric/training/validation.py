"""Validation: score the learner on classes of its own, keep the best weights, decide when to stop."""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import isnan, nan

from equimetric.errors import EquimetricError, EquimetricWarning
from equimetric.runs.cohorts import RunCohorts
from equimetric.runs.evaluation import (
    NEIGHBOURS,
    LabelledEmbeddings,
    embed_part,
    evaluate_defined,
    evaluate_part,
    within_parents,
)
from equimetric.training.averaging import averaged_weights
from equimetric.training.batch_weights import log_batch_weights
from equimetric.training.checkpoint import Checkpoint, copy_weights
from equimetric.training.distributed import sync_batch_norm
from equimetric.training.session import Session
from equimetric.training.sinks import Log
from equimetric.training.spread import measure_spread, warn_on_collapse

__all__ = ["count_plateau", "is_best", "out_of_patience", "validate"]


def validate(session: Session, log: Log) -> None:
    """Evaluate the validation classes, log the scores, and copy the weights where they are the best so far.

    A final model has no validation classes: its source has chosen the last step, and where rates are lowered.
    """
    config, learner, state = session.config, session.learner, session.state
    session.require_finite_weights()
    sync_batch_norm(learner, session.processes)
    with averaged_weights(learner, state.average):
        if config.refit is not None:
            state.best_step, state.best_weights = state.step, copy_weights(learner, session.frozen)
            state.lowered = sum(step <= state.step for step in config.refit.lowered_at)
        else:
            scores = score(session, log)
            value = scores[config.evaluation.selected_by]
            if is_best(state, value):
                state.best_value, state.best_step, state.best_scores = value, state.step, scores
                state.best_weights = copy_weights(learner, session.frozen)
            count_plateau(state, config.optimizer.plateau_steps)
        if session.profiled:
            log_batch_weights(session)


def score(session: Session, log: Log) -> dict[str, float]:
    """The scores of the validation classes, logged with the spread of their embeddings."""
    state, processes = session.state, session.processes
    across = session.config.evaluation.across
    embedded = embed_part(session.learner, session.data, "validation", processes, across=across)
    embedded = within_parents(embedded, session.data, session.config.evaluation.parents)
    if state.step == 0:
        check_test_metrics(session, embedded)
        scores = dict(evaluate_part(embedded, session.config.evaluation)) if processes.is_main else {}
    else:
        scores = score_trained(session, embedded) if processes.is_main else {}
    scores = processes.broadcast(scores)
    spread = measure_spread(embedded.embeddings)
    record = {"kind": "validation", "step": state.step, **scores, "spread": spread}
    log.write(record)
    state.history.append(record)
    warn_on_collapse(session, "the validation images", spread)
    return scores


def check_test_metrics(session: Session, embedded: LabelledEmbeddings) -> None:
    """Score the start as the test will, so that metrics that cannot be computed raise before anything trains."""
    config = session.config.evaluation
    if config.cohort is None or not session.learner.trains:
        return
    cohorts = RunCohorts(session.learner, session.data, session.processes)
    try:
        with warnings.catch_warnings():
            # A narrow cohort is noted where the run ends.
            warnings.simplefilter("ignore", EquimetricWarning)
            cohort = cohorts.cohort(cohorts.choose(config.cohort), labelled=True)
            evaluate_part(replace(embedded, cohort=cohort), config, neighbours=NEIGHBOURS)
    except EquimetricError as error:
        raise EquimetricError(f"evaluation.metrics with evaluation.cohort cannot be computed: {error}") from None


def score_trained(session: Session, embedded: LabelledEmbeddings) -> dict[str, float]:
    """The scores of a learner after some steps: NaN, with a warning, where its embeddings leave a metric undefined."""
    config, state = session.config, session.state
    try:
        scores, reasons = evaluate_defined(embedded, config.evaluation)
        values = dict(scores)
    except EquimetricError as error:
        values = dict.fromkeys(config.evaluation.names(), nan)
        reasons = dict.fromkeys(values, str(error))
    last = state.history[-1] if state.history else {}
    undefined = [name for name in reasons if not isnan(last.get(name, 0.0))]
    if undefined:
        warnings.warn(
            f"{config.method}, seed {config.seed}: {', '.join(undefined)} cannot be computed at step {state.step} and "
            f"counts as NaN: {reasons[undefined[0]]}",
            stacklevel=2,
        )
    return values


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
