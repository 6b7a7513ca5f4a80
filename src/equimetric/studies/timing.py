"""How long a study may take on this machine, from a few steps of every kind of run.

The steps are taken by networks of their own, which are thrown away, and everything random is put back as it was: a
study whose time was estimated gives the same bits.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from equimetric.data import take_images
from equimetric.data.attributes import attribute_ids
from equimetric.data.decoding import available_cores
from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate
from equimetric.learners import EpochView, Learner
from equimetric.learners.learner import Outputs
from equimetric.processes import SINGLE
from equimetric.progress import format_seconds
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import RunData
from equimetric.runs.embedding import apply_in_blocks, embed_images
from equimetric.runs.features import estimate_seconds
from equimetric.runs.folder import RunFolder
from equimetric.runs.run_cache import RunCache
from equimetric.studies.workload import Part, Workload
from equimetric.threads import use_threads
from equimetric.training.checkpoint import Checkpoint
from equimetric.training.distributed import wrap_ddp
from equimetric.training.gradients import backward
from equimetric.training.loading import load_batches
from equimetric.training.optimizers import build_optimizer
from equimetric.training.placement import Placement
from equimetric.training.sampling import TaskBatches
from equimetric.training.session import Session

__all__ = ["estimate_time", "is_worth_an_estimate"]

MEASURED_STEPS, MEASURED_IMAGES = 4, 16
"""Steps that are timed for each kind of run, and images of a step where a whole network is trained."""

ENOUGH_SECONDS = 1.0
"""No further step is timed once those before took this long."""

WORTHWHILE = 100
"""An estimate is worth while where it takes at most a hundredth of the steps that are left."""

SECONDS_FOR_DETAIL = 10.0
"""After these, runs with the same network and batches count as equally fast, whatever their method."""

EMBEDDED_IMAGES, EVALUATED = 16, 2_000
"""Images that are embedded, and embeddings that are scored, to time an evaluation."""


@dataclass(frozen=True)
class Speed:
    """Seconds of a step, of a validation and of the test, and how often an epoch embeds the training set."""

    step: float
    validation: float
    test: float
    epoch: float

    def run(self, part: Part) -> float:
        """Seconds of one run of a part."""
        steps = part.steps // part.runs
        epochs = steps // part.config.training.validate_every
        return steps * self.step + (1 + epochs) * self.validation + epochs * self.epoch + self.test


def is_worth_an_estimate(work: Workload) -> bool:
    """Whether measuring takes a small share of the steps that are left."""
    kinds = {speed_key(part) for part in work.parts if part.steps}
    return work.steps >= WORTHWHILE * MEASURED_STEPS * max(1, len(kinds))


def estimate_time(work: Workload, *, jobs: int) -> str:
    """'about 12 days with 2 runs at a time on this machine, at 0.42 s to 0.61 s a step'; '' where nothing trains."""
    if not work.steps:
        return ""
    speeds: dict[str, Speed] = {}
    seconds, began = 0.0, time.monotonic()
    rates = []
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in work.parts:
            key = speed_key(part)
            if key not in speeds or time.monotonic() - began < SECONDS_FOR_DETAIL:
                speeds[key] = measure_speed(part)
            seconds += part.runs * speeds[key].run(part)
            if part.steps:
                rates.append(speeds[key].step)
        features = sum(map(time_features, {feature_key(part): part for part in work.parts}.values()))
    slots = max(1, min(jobs, available_cores(), sum(part.runs for part in work.parts)))
    rate = " to ".join(dict.fromkeys([format_step(min(rates)), format_step(max(rates))]))
    return (
        f"{'at most' if work.may_stop_early else 'about'} {format_seconds(features + seconds / slots)} with {slots} "
        f"{'run' if slots == 1 else 'runs'} at a time on this machine, at {rate} a step"
    )


def format_step(seconds: float) -> str:
    """'0.42 s', '3.1 ms'."""
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{seconds * 1000:.2g} ms"


def speed_key(part: Part) -> str:
    """Parts with the same key train as fast, but for what their losses take."""
    config = part.config
    tables = (config.model, config.batch, config.learner, config.training, config.evaluation)
    return "\n".join([part.row.kind, part.point, config.data.transform, *(table.model_dump_json() for table in tables)])


def measure_speed(part: Part) -> Speed:
    """Time some steps of a run, and an evaluation, with a network that is thrown away."""
    config, data = part.config, part.data
    with use_threads(config.training.threads):
        placement = Placement.from_config(config.training)
        learner = build_learner(config, data.shape)
        placement.move_learner(learner)
        backbone = learner.frozen_backbone() if config.model.frozen and not data.vectors else None
        if backbone is not None:
            # Time does not depend on what the features are.
            data = data.with_features(torch.randn(len(data.dataset), backbone.num_features))
        image = time_image(data, learner)
        validation, test = (time_evaluation(config, data, name, image) for name in ("validation", "test"))
        if not learner.trains:
            return Speed(0.0, validation, test, 0.0)
        step, passes = time_steps(config, data, learner, placement, part.batch_images)
    return Speed(step, validation, test, passes * len(data.rows("train")) * image)


def time_image(data: RunData, learner: Learner) -> float:
    """Seconds to embed an image."""
    images = data.images("train")
    few = take_images(images, torch.arange(min(EMBEDDED_IMAGES, len(images))))
    began = time.perf_counter()
    embed_images(learner, few)
    return (time.perf_counter() - began) / len(few)


def time_evaluation(config: RunConfig, data: RunData, name: str, image: float) -> float:
    """Seconds to embed and to score a part of the data, at so many for an image."""
    labels = data.dataset.labels[data.rows(name)]
    few = labels[:EVALUATED]
    began = time.perf_counter()
    # Not every metric is defined for every few random numbers.
    with suppress(EquimetricError):
        evaluate(
            torch.randn(len(few), config.model.dim or 1),
            few,
            metrics=config.evaluation.names(),
            geometry=config.evaluation.compared_by(),
        )
    scored = time.perf_counter() - began
    return scored * (len(labels) / max(1, len(few))) ** 2 + len(labels) * image


def time_steps(
    config: RunConfig, data: RunData, learner: Learner, placement: Placement, images: int
) -> tuple[float, int]:
    """Seconds of a step with so many images, and how many times an epoch embeds the training set."""
    shrinks = not data.vectors and images > MEASURED_IMAGES
    try:
        session = open_timing_session(with_fewer_images(config) if shrinks else config, data, learner, placement)
    except EquimetricError:
        # Batches of this kind cannot be smaller.
        session = open_timing_session(config, data, learner, placement)
    batch, optimizer = session.config.batch, session.optimizer
    view, passes = untrained_view(session)
    learner.on_epoch(view)
    session.batches.set_tasks()
    session.batches.refresh(view.embeddings, learner.groups())
    learner.before_step(0)
    learner.train()
    trainable, batches = wrap_ddp(learner, SINGLE), load_batches(session, first=0, n=MEASURED_STEPS * batch.per_step)
    times: list[float] = []
    drawn = 0
    while len(times) < MEASURED_STEPS and sum(times) < ENOUGH_SECONDS:
        began = time.perf_counter()
        optimizer.zero_grad()
        for _ in range(batch.per_step):
            images_drawn = next(batches)
            drawn += len(images_drawn)
            backward(trainable, images_drawn, placement, at_once=batch.at_once)
        optimizer.step()
        if placement.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    # The first step warms up.
    seconds = min(times[1:] or times)
    return seconds * images / (drawn / len(times)), passes()


def with_fewer_images(config: RunConfig) -> RunConfig:
    """The configuration with few images in a step, whose time is proportional to them where a network is trained."""
    batch = config.batch
    classes = max(2, min(batch.classes or 2, MEASURED_IMAGES // batch.samples))
    at_once = None if batch.at_once is None else MEASURED_IMAGES // 2
    fewer = batch.model_copy(update={"classes": classes, "at_once": at_once, "per_step": 1})
    return config.model_copy(update={"batch": fewer})


def open_timing_session(config: RunConfig, data: RunData, learner: Learner, placement: Placement) -> Session:
    """A session without a folder."""
    train_data = data.train_data
    return Session(
        config,
        RunFolder(Path(), writes=False),
        SINGLE,
        placement,
        learner,
        data,
        data.shape,
        build_optimizer(learner, config.optimizer),
        TaskBatches(config, learner, train_data.labels, partial(attribute_ids, train_data)),
        Checkpoint(),
        resumed=False,
        cache=RunCache(),
    )


def untrained_view(session: Session) -> tuple[EpochView, Callable[[], int]]:
    """The training set with random numbers in place of its outputs, and how many times it was asked for."""
    images, train_data = session.data.images("train"), session.train_data
    asked: list[int] = []

    def apply(function: Callable[[Tensor], Outputs], rows: Tensor | None) -> dict[str, Tensor]:
        few = apply_in_blocks(session.learner, function, take_images(images, torch.arange(min(2, len(images)))))
        asked.append(len(images) if rows is None else len(rows))
        return {name: torch.randn(asked[-1], *values.shape[1:]) for name, values in few.items()}

    def score(embeddings: Tensor, labels: Tensor, metrics: Sequence[str]) -> dict[str, float]:  # noqa: ARG001
        return dict.fromkeys(metrics, 0.0)

    view = EpochView(session.learner, train_data.labels, partial(attribute_ids, train_data), [], apply, score)
    return view, lambda: round(sum(asked) / max(1, len(images)))


def feature_key(part: Part) -> str:
    """Parts with the same key train on the same features."""
    model = part.config.model
    random = part.config.seed if model.pretrained is None else None
    parts = (model.frozen, model.backbone, model.pretrained, model.pooling, part.config.data.transform, part.point)
    return f"{parts} {random}"


def time_features(part: Part) -> float:
    """Seconds to compute the features of a frozen backbone for all images, on all cores; 0 where they are there."""
    if not part.config.model.frozen or part.data.vectors:
        return 0.0
    backbone = build_learner(part.config, part.data.shape).frozen_backbone()
    return 0.0 if backbone is None else estimate_seconds(backbone, part.data.eval_data)
