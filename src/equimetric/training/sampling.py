"""Rows of each batch: the samplers of a learner's tasks, without held-out rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from equimetric.batches import BATCHES, Batches, Groups, build_batches
from equimetric.data.attributes import find_attribute
from equimetric.errors import EquimetricError
from equimetric.learners import Learner, Task
from equimetric.processes import Processes
from equimetric.runs.configuration import RunConfig
from equimetric.seeding import derive_seed
from equimetric.training.distributed import shard_batches

__all__ = ["TaskBatches", "build_run_batches"]

MAIN = "main"


def build_run_batches(
    config: RunConfig,
    labels: Tensor,
    *,
    kind: str | None = None,
    task: str = MAIN,
    classes: int | None = None,
    attributes: Callable[[], Mapping[str, Tensor]] = dict,
) -> Batches:
    """The configured sampler over (N,) labels, before its first batch; `attributes()` are (N,) ids by name.

    `classes` replaces the configured number in a batch.
    """
    batch = config.batch
    assert batch.classes is not None, "fit_to_data chooses a number"
    options = dict(batch.options) if kind in (None, batch.kind) else {}
    for option in BATCHES.find(kind or batch.kind).per_sample:
        if isinstance(options.get(option), str):
            options[option] = find_attribute(attributes(), options[option], f"batch.options.{option}")
    return build_batches(
        kind or batch.kind,
        labels,
        classes=classes or batch.classes,
        samples=batch.samples,
        batches=config.training.steps * batch.per_step,
        seed=config.seed if task == MAIN else derive_seed(config.seed, "task", task),
        options=options,
    )


@dataclass(frozen=True, eq=False)
class TaskSampler:
    """A task with the sampler of its rows; `rows` is None where all training rows are drawn from."""

    task: Task
    labels: Tensor
    rows: Tensor | None
    batches: Batches

    def take(self, values: Tensor) -> Tensor:
        """The entries of the rows that are drawn from."""
        return values if self.rows is None else values[self.rows]

    def view(self, embeddings: Callable[[], Tensor]) -> Tensor:
        """The embeddings of the rows that are drawn from."""
        return self.take(embeddings())


class TaskBatches:
    """Batches of all tasks of a learner: which task, and which training rows.

    `unused` are the tasks of the batches that were drawn ahead, in order; using a batch pops its task from the left.
    """

    def __init__(
        self,
        config: RunConfig,
        learner: Learner,
        labels: Tensor,
        attributes: Callable[[], Mapping[str, Tensor]] = dict,
    ) -> None:
        self.config = config
        self.learner = learner
        self.labels = labels
        self.attributes = attributes
        self.held_out = learner.holdout(labels)
        self.samplers: dict[str, TaskSampler] = {}
        self.unused: deque[str] = deque()
        if learner.trains:
            # Tasks with labels of their own may get them only after the first epoch has begun.
            self.samplers = {task.name: self.build(task) for task in learner.tasks() if task.labels is None}

    @property
    def adapts(self) -> bool:
        """Whether batches depend on the embeddings of earlier ones."""
        return any(sampler.batches.adapts for sampler in self.samplers.values())

    def set_tasks(self) -> None:
        """Follow the learner's tasks: a task with other labels than before gets a new sampler, in its next epoch."""
        tasks = self.learner.tasks()
        if len({task.name for task in tasks}) < len(tasks) or not any(task.probability > 0 for task in tasks):
            raise EquimetricError("tasks of a learner need different names, and one of them a probability above 0")
        self.samplers = {task.name: self.follow(task, self.samplers.get(task.name)) for task in tasks}

    def follow(self, task: Task, before: TaskSampler | None) -> TaskSampler:
        """The sampler of a task: the one before where the labels are the same, else a new one in the next epoch."""
        if before is not None and torch.equal(before.labels, self.sampled_labels(task)):
            return replace(before, task=task)
        sampler = self.build(task)
        if before is not None:
            sampler.batches.set_epoch(before.batches.epoch + 1)
        return sampler

    def sampled_labels(self, task: Task) -> Tensor:
        """(N,) labels of a task, −1 for rows that are not sampled."""
        labels = (self.labels if task.labels is None else task.labels).detach().cpu().clone()
        if self.held_out is not None:
            labels[self.held_out] = -1
        return labels

    def build(self, task: Task) -> TaskSampler:
        """The sampler of a task over the rows that it has labels for and that are not held out."""
        labels = self.sampled_labels(task)
        is_sampled = labels >= 0
        rows = None if bool(is_sampled.all()) else is_sampled.nonzero()[:, 0]
        row_labels = labels if rows is None else labels[rows]
        attributes = partial(self.take_attributes, rows)
        # A cluster may have fewer classes than a batch of the whole training set.
        classes = None if task.labels is None else min(self.config.batch.classes or 1, len(torch.unique(row_labels)))
        batches = build_run_batches(
            self.config, row_labels, kind=task.batches, task=task.name, classes=classes, attributes=attributes
        )
        return TaskSampler(task, labels, rows, batches)

    def take_attributes(self, rows: Tensor | None) -> Mapping[str, Tensor]:
        """The attributes of some training rows, or of all."""
        attributes = self.attributes()
        return attributes if rows is None else {name: ids[rows] for name, ids in attributes.items()}

    def refresh(self, embeddings: Callable[[], Tensor], groups: Groups | None) -> None:
        """Show the training set to samplers that mine it."""
        for sampler in self.samplers.values():
            sampler_groups = groups
            if groups is not None and sampler.rows is not None:
                weight = None if groups.weight is None else sampler.take(groups.weight)
                sampler_groups = Groups(sampler.take(groups.cluster), weight)
            sampler.batches.set_groups(sampler_groups)
            sampler.batches.refresh(partial(sampler.view, embeddings), sampler.take(sampler.labels))

    def observe(self, task: str, embeddings: Tensor) -> None:
        """Show the embeddings of a task's last batch to its sampler."""
        self.samplers[task].batches.observe(embeddings)

    def draw(self, first: int, n: int, processes: Processes) -> Iterator[Tensor]:
        """N times this rank's training rows for a task, from batch `first` on; the task is added to `unused`."""
        self.unused.clear()
        streams = {name: shard_batches(sampler.batches, processes) for name, sampler in self.samplers.items()}
        for index in range(first, first + n):
            name = self.task_of(index)
            rows = self.samplers[name].rows
            chosen = next(streams[name])
            self.unused.append(name)
            yield chosen if rows is None else rows[chosen]

    def task_of(self, index: int) -> str:
        """The task of batch `index`, drawn by probability from a seed of its own."""
        if len(self.samplers) == 1:
            return next(iter(self.samplers))
        generator = torch.Generator().manual_seed(derive_seed(self.config.seed, "task of batch", index))
        probs = torch.tensor([sampler.task.probability for sampler in self.samplers.values()])
        return list(self.samplers)[int(torch.multinomial(probs, 1, generator=generator))]

    def labels_of(self, task: str, rows: Tensor) -> Tensor:
        """The labels of training rows under a task."""
        return self.samplers[task].labels[rows]

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """The position of every sampler after the last batch that was used, and its mined tensors."""
        return {
            name: rewind(sampler.batches.state_dict(), self.unused.count(name), len(sampler.batches))
            for name, sampler in self.samplers.items()
        }

    def load_state_dict(self, state: Mapping[str, dict[str, Any]]) -> None:
        """Restore the samplers of the learner's tasks, which its own state has brought back."""
        self.samplers = {task.name: self.build(task) for task in self.learner.tasks() if task.name in state}
        for name, sampler in self.samplers.items():
            sampler.batches.load_state_dict(state[name])


def rewind(state: dict[str, Any], batches: int, per_epoch: int) -> dict[str, Any]:
    """The state of a sampler a number of batches earlier, while its epochs follow one another."""
    epochs_back, position = divmod(state["position"] - batches, per_epoch)
    return {**state, "epoch": state["epoch"] + epochs_back, "position": position} if batches else state
