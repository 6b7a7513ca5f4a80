"""Features that the runs of a study share, computed before its workers start."""

from collections.abc import Sequence

from equimetric.runs.building import build_learner
from equimetric.runs.data import RunData
from equimetric.runs.features import cached_features
from equimetric.studies.jobs import Job
from equimetric.training.placement import Placement

__all__ = ["extract_features"]


def extract_features(jobs: Sequence[Job], data: RunData) -> None:
    """Compute the features that jobs train on, where they are not cached: on all cores, and with one progress bar.

    Backbones with pretrained weights are the same for all seeds; random ones are not.
    """
    if data.vectors:
        return
    distinct = {}
    for job in jobs:
        model = job.config.model
        if model.frozen or model.head_init == "pca":
            seed = job.config.seed if model.pretrained is None else None
            distinct[seed, job.config.learner.model_dump_json()] = job.config
    for config in distinct.values():
        learner = build_learner(config, data.shape)
        Placement.of(config.training).place(learner)
        backbone = learner.frozen_backbone()
        if backbone is not None:
            cached_features(backbone, data.eval_data)
