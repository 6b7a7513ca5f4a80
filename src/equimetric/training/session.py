"""Everything a running training holds: configuration, folder, learner, data, optimiser, samplers and progress."""

from __future__ import annotations

import time
from collections.abc import Set
from dataclasses import dataclass
from functools import cached_property, partial

from torch import Tensor

from equimetric.data import Dataset, sample_weights
from equimetric.data.attributes import attribute_ids
from equimetric.learners import Learner
from equimetric.processes import Processes
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import RunData
from equimetric.runs.evaluation import evaluation_data
from equimetric.runs.features import cached_features
from equimetric.runs.folder import RunFolder
from equimetric.runs.result import DataShape
from equimetric.runs.run_cache import RunCache
from equimetric.seeding import derive_seed
from equimetric.training.averaging import start_average
from equimetric.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from equimetric.training.finite import require_finite_weights
from equimetric.training.optimizers import Optimizers, build_optimizer
from equimetric.training.placement import Placement
from equimetric.training.preconditions import require_conditions, require_trainable
from equimetric.training.sampling import TaskBatches

__all__ = ["Session", "open_session"]


@dataclass(frozen=True, eq=False)
class Session:
    """A run while it trains.

    Attributes:
        data: the data as they are evaluated, features in place of images where the backbone is frozen.
        shape: of the data as they were loaded.
        optimizer, batches: empty for baselines, which take no step.
        resumed: whether `state` comes from a checkpoint.
        cache: parts shared with other runs of the process.
        profiled: whether it stores thresholds, map and pair weights for a report.
    """

    config: RunConfig
    run: RunFolder
    processes: Processes
    placement: Placement
    learner: Learner
    data: RunData
    shape: DataShape
    optimizer: Optimizers
    batches: TaskBatches
    state: Checkpoint
    resumed: bool
    cache: RunCache
    profiled: bool = False

    @property
    def train_data(self) -> Dataset:
        """The training rows, class ids 0 … C − 1."""
        return self.data.train_data

    @property
    def steps(self) -> int:
        """Optimiser steps, at most."""
        return self.config.steps if self.learner.trains else 0

    @cached_property
    def frozen(self) -> Set[str]:
        """Names of the learner's state that never train."""
        return self.learner.frozen_state()

    @cached_property
    def weights(self) -> Tensor | None:
        """(N,) how often each training row counts; None where all count once."""
        name = self.config.data.weights
        return None if name is None else sample_weights(self.train_data, name)

    @property
    def validate_every(self) -> int:
        """Steps between validations."""
        return self.config.training.validate_every

    @property
    def period(self) -> int:
        """Steps between calls of the learner's `on_epoch`."""
        return self.learner.period or self.validate_every

    @property
    def best(self) -> dict[str, float]:
        """The best validation value so far, by the name under which it is shown; empty for a final model."""
        name = f"best {self.config.evaluation.selected_by}"
        return {name: self.state.best_value} if self.config.refit is None else {}

    def validates(self, step: int) -> bool:
        """Whether there is a validation after `step` steps."""
        return step % self.validate_every == 0 or step == self.steps

    def logs(self, step: int) -> bool:
        """Whether there is a line in the log after `step` steps."""
        return self.validates(step) or step % self.config.training.log_every == 0

    def seed(self, purpose: str, step: int) -> None:
        """Seed everything random that follows by a purpose and a step, so nothing random has to be saved."""
        self.placement.seed(derive_seed(self.config.seed, purpose, step))

    def save_if_due(self) -> None:
        """Write a checkpoint where the last one is long enough back."""
        if time.monotonic() - self.state.saved_at >= self.config.training.checkpoint_seconds:
            self.save()

    def save(self) -> None:
        """Write a checkpoint, never of weights that are not finite."""
        self.require_finite_weights()
        save_checkpoint(self.run, self.state, self.learner, self.optimizer, self.batches, self.frozen)

    def require_finite_weights(self) -> None:
        """Raise an error where a weight is not finite; frozen ones are those of the start."""
        require_finite_weights(self.learner, self.state.step, self.frozen if self.state.step else ())


def open_session(
    config: RunConfig, run: RunFolder, data: RunData, processes: Processes, cache: RunCache, *, profiled: bool = False
) -> Session:
    """Build everything, and restore the last checkpoint where there is one."""
    placement = Placement.from_config(config.training, processes.local_rank)
    learner = build_learner(config, data.shape, cache=cache)
    placement.move_learner(learner, compiled=config.training.compile)
    conditions = (data, config.evaluation.model_dump_json(), config.model.dim)
    cache.check_once(conditions, partial(require_conditions, config, data))
    # Before features are computed, which takes long, an image shows whether it makes sense.
    require_trainable(config, cache.find_features(data, learner.frozen_backbone()) or data, learner)
    loaded, data = data, evaluation_data(config, learner, data, processes, cache)
    if config.model.starts_by_pca:
        learner.init_head(partial(training_features, learner, loaded, data, processes))
    optimizer = build_optimizer(learner, config.optimizer) if learner.trains else Optimizers()
    train_data = data.train_data
    batches = TaskBatches(config, learner, train_data.labels, partial(attribute_ids, train_data))
    state = load_checkpoint(run, learner, optimizer, batches)
    resumed = state is not None
    average = None if config.training.ema is None else start_average(learner, learner.frozen_state())
    state = state or Checkpoint(average=average)
    return Session(
        config,
        run,
        processes,
        placement,
        learner,
        data,
        loaded.shape,
        optimizer,
        batches,
        state,
        resumed,
        cache,
        profiled,
    )


def training_features(learner: Learner, loaded: RunData, data: RunData, processes: Processes) -> Tensor:
    """(N, F) features of the rows that a head starts from: of the learner's backbone, or the data themselves."""
    backbone, parts = learner.frozen_backbone(), learner.head_parts
    if data.vectors or backbone is None:
        # The rows of one part are the same tensor for every run, whose principal directions are computed once.
        rows = data.images(parts[0]) if len(parts) == 1 else data.eval_data.images[data.rows_of(*parts)]
        assert isinstance(rows, Tensor), "images in files need a backbone"
        return rows
    return cached_features(backbone, loaded.eval_data, processes)[data.rows_of(*parts)]
