"""The cohort of a run: made of classes that it is not tested on, as configured or as chosen on validation classes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, EquimetricWarning
from equimetric.evaluation import Cohort, choose_cohort
from equimetric.evaluation.cohort import MIN_COHORT_CLASSES, describe_narrow
from equimetric.learners import Learner
from equimetric.processes import SINGLE, Processes
from equimetric.runs.configuration import CohortConfig
from equimetric.runs.data import RunData
from equimetric.runs.embedding import embed_images
from equimetric.runs.result import CohortSetting, ScoredCohort

__all__ = ["RunCohorts", "cohort_notes", "cohort_rows", "configured_setting"]

COHORT_SOURCES = {
    "train": ("train",),
    "validation": ("validation",),
    "both": ("train", "validation"),
    "cohort": ("cohort",),
}
"""Cohort → parts of the split."""


@dataclass(frozen=True, eq=False)
class RunCohorts:
    """Cohorts of the classes of a run, each part of which is embedded once; never of its test classes."""

    learner: Learner
    data: RunData
    processes: Processes = SINGLE
    _embedded: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    def cohort(self, setting: CohortSetting, *, labelled: bool = False) -> Cohort:
        """The cohort of a setting; `labelled` where it is to be used on classes that it may hold itself."""
        labels = self.data.dataset.labels
        embeddings = torch.cat([self.embed(part) for part in COHORT_SOURCES[setting.part]])
        classes = torch.cat([labels[self.data.rows(part)] for part in COHORT_SOURCES[setting.part]])
        return Cohort(embeddings, classes if labelled else None, setting.strength, setting.nearest, setting.form)

    def choose(self, config: CohortConfig) -> CohortSetting:
        """The setting of a configuration; "auto" values are chosen on validation classes, alike in all processes."""
        if not config.is_chosen:
            return configured_setting(config, self.data)
        cohort = self.cohort(CohortSetting(part=config.part, nearest=config.nearest), labelled=True)
        validation = self.embed("validation")
        chosen = self._choose(validation, cohort, config) if self.processes.is_main else None
        chosen = self.processes.broadcast(chosen)
        assert chosen is not None
        return chosen

    def _choose(self, validation: Tensor, cohort: Cohort, config: CohortConfig) -> CohortSetting:
        labels = self.data.dataset.labels[self.data.rows("validation")]
        with warnings.catch_warnings():
            # Narrow cohorts are reported in a note of the run.
            warnings.simplefilter("ignore", EquimetricWarning)
            choice = choose_cohort(
                validation,
                labels,
                {config.part: cohort},
                strengths=config.strengths(),
                forms=config.forms(),
                far=config.far,
            )
        tried = tuple(
            ScoredCohort(
                form=trial.form,
                strength=trial.strength,
                tar=trial.tar,
                error=trial.error,
                is_default=trial is choice.default,
            )
            for trial in choice.trials
        )
        return CohortSetting(
            part=config.part,
            form=choice.best.form,
            strength=choice.best.strength,
            nearest=config.nearest,
            classes=count_classes(self.data, config.part),
            far=config.far,
            tried=tried,
        )

    def embed(self, part: str) -> Tensor:
        """(M, D) embeddings of a part of the split."""
        if part not in self._embedded:
            self._embedded[part] = embed_images(self.learner, self.data.images(part), processes=self.processes)
        return self._embedded[part]


def configured_setting(config: CohortConfig, data: RunData) -> CohortSetting:
    """The setting of a configuration that leaves nothing to be chosen."""
    if config.is_chosen:
        raise EquimetricError(
            "this run has not stored which cohort its validation classes chose; train it again, or give --cohort"
        )
    return CohortSetting.model_validate(
        {
            **config.model_dump(include={"part", "form", "strength", "nearest"}),
            "classes": count_classes(data, config.part),
        }
    )


def cohort_rows(data: RunData, part: str) -> Tensor:
    """The rows of the data set that a cohort is made of."""
    rows = torch.cat([data.rows(source) for source in COHORT_SOURCES[part]])
    if not len(rows):
        raise EquimetricError(f"there are no {part} classes for a cohort; choose evaluation.cohort.part = 'train'")
    return rows


def count_classes(data: RunData, part: str) -> int:
    """Number of classes of a cohort."""
    return len(torch.unique(data.dataset.labels[cohort_rows(data, part)]))


def cohort_notes(setting: CohortSetting | None) -> tuple[str, ...]:
    """Notes for the user about a run's cohort."""
    if setting is None or setting.strength == 0 or not 0 < setting.classes < MIN_COHORT_CLASSES:
        return ()
    text = describe_narrow(setting.classes)
    return (f"{text[0].upper()}{text[1:]}.",)
