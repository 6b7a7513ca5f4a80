"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from equimetric.components import Scheduled
from equimetric.learners import Batch
from equimetric.processes import choose_device, init_processes
from equimetric.runs.access import require_writable
from equimetric.runs.configuration import RunConfig
from equimetric.runs.folder import RunFolder
from equimetric.runs.image_size import fit_images
from equimetric.runs.key import Role, RunKey
from equimetric.runs.model import TrainedModel
from equimetric.runs.plugin_config import load_with_plugins
from equimetric.runs.regimes import fit_to_data
from equimetric.runs.run_cache import RunCache
from equimetric.threads import use_threads
from equimetric.training.averaging import update_average
from equimetric.training.completion import find_finished, finish_run
from equimetric.training.distributed import Trainable, wrap_ddp
from equimetric.training.epochs import continue_epoch, start_epoch, starts_epoch
from equimetric.training.finite import gradient_norms
from equimetric.training.gradients import backward
from equimetric.training.interrupt import stop_if_requested, stop_request
from equimetric.training.memory import PeakMemory
from equimetric.training.meter import LossMeter
from equimetric.training.optimizers import clip_gradients, learning_rate_factor, set_learning_rates
from equimetric.training.session import Session, open_session
from equimetric.training.sinks import Log, open_log
from equimetric.training.spread import BatchSpread
from equimetric.training.validation import out_of_patience, validate

__all__ = ["Progress", "train"]

Progress = Callable[[int, Mapping[str, float]], None]
"""Called after every step with the number of steps taken and the values to show; without values on resuming."""


def train(
    config: RunConfig | Mapping[str, Any] | str | Path,
    *,
    folder: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    role: Role = "final",
    cache: RunCache | None = None,
    profile: bool = False,
) -> TrainedModel:
    """Train one model, keep its best weights by validation, and evaluate it once on the test classes.

    `config` is a TOML file, a mapping or a `RunConfig`. Run again with the same configuration and folder, a finished
    run is loaded and a killed one resumes at its last checkpoint, to the same result bit for bit. Started by torchrun,
    several processes train one model together. With `profile`, its folder also has what a report shows of a run
    beyond its scores: thresholds by class, a map of the embeddings, pair weights during training.
    """
    config, cache = fit_images(load_with_plugins(config, RunConfig, overrides)), cache or RunCache()
    role = role if config.refit is None else "refit"
    with use_threads(config.training.threads), init_processes(config.training.device) as processes:
        require_writable(Path(folder or "runs"), "run folder")
        memory = PeakMemory(cuda=choose_device(config.training.device) == "cuda")
        data = cache.data(config)
        config = fit_to_data(config, data.shape)
        key = RunKey.from_config(config, data.fingerprint, role=role, processes=processes.world_size)
        run = RunFolder(Path(folder) if folder else default_folder(key), writes=processes.is_main)
        with run.lock():
            finished = find_finished(run, config, key, processes)
            if finished is not None:
                return finished
            run.require(key, data.fingerprint, config)
            session = open_session(config, run, data, processes, cache, profiled=profile)
            run.prepare(config, data.fingerprint, key)
            train_steps(session, progress)
            return finish_run(session, role, memory)


def default_folder(key: RunKey) -> Path:
    """runs/single/<method>/<seed>-<hash>."""
    return Path("runs") / "single" / key.method.replace(" ", "").replace("*", "x") / key.folder


def train_steps(session: Session, progress: Progress | None = None) -> None:
    """Take all steps that are left."""
    config, learner, optimizer, state = session.config, session.learner, session.optimizer, session.state
    meter, spread = LossMeter(config), BatchSpread(session)
    scheduled = [part for part in learner.modules() if isinstance(part, Scheduled)]
    with (
        open_log(session.run, config, state.step) as log,
        stop_request(session, meter) as stop,
        meter.explain_errors(),
    ):
        if not session.resumed:
            validate(session, log)
            session.save_if_due()
        elif progress:
            progress(state.step, {})
        start_time, first_step = time.perf_counter() - state.seconds, state.step
        for step in range(first_step, session.steps):
            if learner.before_step(step) or step == first_step:
                learner.train()
                trainable = wrap_ddp(learner, session.processes)
            if starts_epoch(session, step):
                if out_of_patience(session, step):
                    break
                batches = start_epoch(session, step)
            elif step == first_step:
                batches = continue_epoch(session, step)
            session.seed("step", step)
            for part in scheduled:
                part.set_step(step)
            factor = learning_rate_factor(config.optimizer, step, config.training.steps, state.lowered)
            set_learning_rates(optimizer, factor)
            optimizer.zero_grad()
            images = accumulate_gradients(session, trainable, batches, meter, spread)
            meter.add_gradients(gradient_norms(optimizer), step)
            clip_gradients(optimizer, config.optimizer)
            optimizer.step()
            learner.after_step(step)
            if state.average is not None and config.training.ema is not None:
                update_average(state.average, learner, config.training.ema, step)

            state.step, state.seconds = step + 1, time.perf_counter() - start_time
            log_and_validate(session, log, meter, spread)
            if progress:
                speed = state.step * images * session.processes.world_size / state.seconds
                progress(state.step, {**meter.latest, **session.best, "images/s": speed})
            stop_if_requested(stop, session, meter)


def accumulate_gradients(
    session: Session, trainable: Trainable, batches: Iterator[Batch], meter: LossMeter, spread: BatchSpread
) -> int:
    """Average the gradients of the batches of one step; gives the number of images in this process."""
    per_step, step = session.config.batch.per_step, session.state.step
    for index in range(per_step):
        batch = next(batches)
        terms = backward(
            trainable,
            batch,
            session.placement,
            session.processes,
            scale=1 / per_step,
            at_once=session.config.batch.at_once,
            sync=index == per_step - 1,
            observe=spread.observer(batch, step),
        )
        meter.add(terms, step)
    return per_step * len(batch)


def log_and_validate(session: Session, log: Log, meter: LossMeter, spread: BatchSpread) -> None:
    """Write the line of a step, and validate, where they are due."""
    state = session.state
    if session.logs(state.step):
        meter.read()
        learner_scalars = {"learner": scalars} if (scalars := dict(session.learner.scalars())) else {}
        log.write({**meter.record(state.step, state.seconds), **spread.record(), **learner_scalars})
    if session.validates(state.step):
        validate(session, log)
        session.save_if_due()
