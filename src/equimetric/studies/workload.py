"""The work of a study before it begins: how many runs, steps and images are left."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from equimetric.data.attributes import attribute_ids
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import RunData
from equimetric.studies.plan import StudyPlan
from equimetric.studies.rows import BASE, RowSpec, run_config
from equimetric.studies.search import budget
from equimetric.training.sampling import build_run_batches

__all__ = ["Part", "Workload", "count_work"]


@dataclass(frozen=True, eq=False)
class Part:
    """Runs of one row at one point of a sweep that have not ended.

    Attributes:
        runs: their number, trials included.
        batch_images: images of a step.
    """

    row: RowSpec
    point: str
    config: RunConfig
    data: RunData
    runs: int
    batch_images: int

    @property
    def steps(self) -> int:
        """Steps of all its runs, at most."""
        return self.runs * self.config.steps if self.row.kind == "trained" else 0


@dataclass(frozen=True)
class Workload:
    """What is left of a study.

    Attributes:
        runs, ended: all runs of the study, and those that have ended.
        parts: the runs that are left and train or are evaluated.
        may_stop_early: whether a run may take fewer steps than its budget.
    """

    runs: int
    ended: int
    parts: Sequence[Part]
    may_stop_early: bool

    @property
    def steps(self) -> int:
        """Steps that are left, at most."""
        return sum(part.steps for part in self.parts)

    @property
    def images(self) -> int:
        """Images in the batches of these steps."""
        return sum(part.steps * part.batch_images for part in self.parts)

    @property
    def sentence(self) -> str:
        """'19 runs: 10,800 steps with 1,382,400 images in their batches', '7 of 19 runs are left: at most …'."""
        left = self.runs - self.ended
        runs = f"{left:,} of {self.runs:,} runs are left" if self.ended else f"{self.runs:,} runs"
        limit = "at most " if self.may_stop_early else ""
        return f"{runs}: {limit}{self.steps:,} steps with {self.images:,} images in their batches"


def count_work(plan: StudyPlan) -> Workload:
    """The runs, steps and images that are left of a study; nothing that has ended counts."""
    parts = [part for row in plan.rows.values() for part in row_parts(plan, row) if part.runs]
    patience = plan.study.training.patience
    return Workload(plan.count_runs(), plan.count_ended(), parts, patience is not None)


def row_parts(plan: StudyPlan, row: RowSpec) -> Iterator[Part]:
    """The trials of a row that are left, as a part, and its final runs that are left at every point."""
    study = plan.study
    if study.search is not None and row.space:
        trials = budget(row.space, study.search) * len(row.folds)
        ended = sum(len(folds) for folds in plan.index.trials_of(row.name).values())
        yield make_part(plan, row, BASE, trials - ended)
    is_tuned = plan.is_tuned(plan.rows[row.base or row.name])
    done = [job.point for job in plan.runs(row) if job.key.content in plan.index.outcomes] if is_tuned else []
    for point in plan.points_of(row):
        yield make_part(plan, row, point, len(row.seeds) * len(row.folds) - done.count(point))


def make_part(plan: StudyPlan, row: RowSpec, point: str, runs: int) -> Part:
    """Some runs of a row at a point."""
    conditions = plan.points_of(row)[point]
    config = run_config(plan.study, row, seed=row.seeds[0], fold=row.folds[0], point=conditions)
    return Part(row, point, config, plan.data[point], runs, count_batch_images(config, plan.data[point]))


def count_batch_images(config: RunConfig, data: RunData) -> int:
    """Images of an optimiser step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = data.train_data.labels
        batches = build_run_batches(config, labels, attributes=partial(attribute_ids, data.train_data))
    return batches.units_per_batch * batches.samples_per_unit * config.batch.per_step
