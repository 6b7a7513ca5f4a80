"""Notes on a finished run; where training did not help, advice based on its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from equimetric.runs.configuration import RunConfig
from equimetric.runs.refit import RefitConfig
from equimetric.training.delayed_starts import explain_delayed_starts
from equimetric.training.session import Session

__all__ = ["describe_refit", "explain_no_gain", "run_notes"]

MAX_UNCHANGED_RATIO = 0.02
"""Largest change of a validation value, relative to the start, that counts as none."""

MIN_LOSS_DROP = 0.01
"""Smallest fall of the loss, relative to its first value, that counts as one."""

MIN_VALIDATIONS = 3
"""Validations after the start below which the best one is the first or the last in any case, and no note says so."""


def run_notes(session: Session, undefined: Mapping[str, str]) -> tuple[str, ...]:
    """Notes for the user about a finished run; the same in all processes.

    `undefined` are the metrics that its test embeddings leave undefined, with the reason.
    """
    config, state = session.config, session.state
    notes = [state.collapse] if state.collapse else []
    notes += [f"{name} of the test classes is not defined: {reason}." for name, reason in undefined.items()]
    notes += explain_delayed_starts(config, session.learner)
    if config.refit is not None:
        notes.append(describe_refit(config.refit))
    elif state.step > 0 and state.best_step == 0 and session.processes.is_main:
        notes.append(explain_no_gain(config, session.run.history()))
    elif state.step > 0:
        notes += explain_extreme(config, [record["step"] for record in state.history], state.best_step)
    return session.processes.broadcast(tuple(notes))


def describe_refit(refit: RefitConfig) -> str:
    """The classes that a final model was trained on, and those that its metrics are of."""
    source = f"run {refit.source}" + (f" ({refit.folder})" if refit.folder else "")
    if refit.classes == "training":
        return (
            f"A final model: {source} repeated with its validation classes among the training classes, for the "
            f"{refit.steps} steps that its validation chose and with its learning rates up to there."
        )
    return (
        f"A final model for deployment: {source} repeated on all classes, for the {refit.steps} steps that its "
        "validation chose and with its learning rates up to there. No class is left to test it, so it has no figures "
        "of its own; those of the run are of a model that had not seen these classes."
    )


def explain_no_gain(config: RunConfig, log: Sequence[Mapping[str, Any]]) -> str:
    """Likely reason, by the log of a run, why no validation was better than the start, and a remedy."""
    metric = config.evaluation.selected_by
    values = {line["step"]: line[metric] for line in log if line["kind"] == "validation" and isfinite(line[metric])}
    start = values.pop(0, None)
    if start is None or not values:
        return (
            f"Training did not help: {metric} on the validation classes was not finite, so the weights of the start "
            "are kept. Choose another evaluation.selected_by, or validation classes with more images."
        )
    best = max(values, key=lambda step: values[step])
    losses = [line["loss"] for line in log if line["kind"] == "train"]
    return (
        f"Training did not help: {metric} on the validation classes was {start:.4f} at the start and at most "
        f"{values[best]:.4f} afterwards (step {best}), so the weights of the start are kept. "
        + explain_curves(config, start, list(values.values()), losses)
    )


def explain_extreme(config: RunConfig, steps: Sequence[int], best: int) -> list[str]:
    """A sentence where the best validation is the first after the start, or the last; alike for runs of equal steps."""
    _, *after = steps
    if len(after) < MIN_VALIDATIONS or best not in (after[0], after[-1]):
        return []
    option, rate = head_or_network_rate(config)
    if best == after[0]:
        return [
            f"The first validation, after {best} steps, was the best: a better one may lie before it. Try "
            f"training.validate_every = {max(1, best // 4)} (now {config.training.validate_every}), or "
            f"optimizer.{option} = {rate / 3:.1g} (now {rate:g})."
        ]
    return [
        f"The last validation, after {best} steps, was the best: more steps may be better. Try training.steps = "
        f"{2 * config.training.steps} (now {config.training.steps})."
    ]


def head_or_network_rate(config: RunConfig) -> tuple[str, float]:
    """The learning rate that counts, with its key in [optimizer]."""
    option = "head_lr" if config.model.frozen and config.optimizer.head_lr else "lr"
    return option, getattr(config.optimizer, option)


def explain_curves(config: RunConfig, start: float, values: Sequence[float], losses: Sequence[float]) -> str:
    """Diagnosis from the validation values after the start and the losses of the log."""
    (option, lr), steps = head_or_network_rate(config), config.training.steps
    lower, higher = (f"optimizer.{option} = {rate:g} (now {lr:g})" for rate in (lr / 10, lr * 10))
    # Batches of few images spoil the statistics of pretrained weights at any learning rate.
    model = config.model
    statistics = bool(model.pretrained) and not model.frozen and not model.frozen_batch_norm
    lower += ", model.frozen_batch_norm = true" if statistics else ""
    more_steps = f"training.steps = {4 * steps} (now {steps})"
    if losses and not any(losses):
        return f"The loss was 0 in every logged step, so nothing was learned; {explain_zero_loss(config)}."
    trend = f"the loss went from {losses[0]:.4g} to {losses[-1]:.4g}"
    if max(abs(value - start) for value in values) <= MAX_UNCHANGED_RATIO * abs(start):
        return (
            f"Validation hardly moved ({trend}), as with too low a rate or too few steps; try {higher} or {more_steps}."
        )
    if len(losses) > 1 and losses[-1] > losses[0] - MIN_LOSS_DROP * abs(losses[0]):
        return (
            f"The loss did not fall ({trend}) and validation got worse, as with too high a rate; try {lower}, "
            "optimizer.warmup_steps, or a batch of more classes."
        )
    if values[-1] == max(values) > values[0]:
        return f"Validation fell at first and was rising at the end ({trend}): try {more_steps}, or {lower}."
    return (
        f"Validation fell from the first one on ({trend}), as with too high a rate; try {lower}, validation after "
        "fewer steps (training.validate_every), or a batch of more classes."
    )


def explain_zero_loss(config: RunConfig) -> str:
    """Remedy where no pair of any batch had a loss."""
    if config.batch.samples == 1:
        return "batches have one image of each class and thus no positive pair: set batch.samples to 2 or more"
    return "all pairs of the batches keep their margins: set a larger margin, or another selection or method"
