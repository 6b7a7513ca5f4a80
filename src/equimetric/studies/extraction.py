"""Features that the runs of a study share, computed before its workers start."""

from collections.abc import Iterable, Mapping

from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import RunData
from equimetric.runs.features import cached_features
from equimetric.studies.plan import StudyPlan
from equimetric.studies.rows import run_config
from equimetric.training.placement import Placement

__all__ = ["extract_features"]


def extract_features(plan: StudyPlan, rows: Iterable[str]) -> None:
    """Compute the features that rows train on, where they are not cached: on all cores, and with one progress bar.

    Backbones with pretrained weights are the same for all seeds; random ones are not.
    """
    distinct: dict[str, tuple[RunConfig, RunData]] = {}
    for name in rows:
        row = plan.rows[name]
        for point, conditions in plan.points_of(row).items():
            for seed in row.seeds if plan.study.model.pretrained is None else row.seeds[:1]:
                config = run_config(plan.study, row, seed=seed, fold=row.folds[0], point=conditions)
                data = plan.data[point]
                if not data.vectors and (config.model.frozen or config.model.head_init == "pca"):
                    distinct[features_cache_key(config, data)] = config, data
    for config, data in distinct.values():
        learner = build_learner(config, data.shape)
        Placement.from_config(config.training).move_learner(learner)
        backbone = learner.frozen_backbone()
        if backbone is not None:
            cached_features(backbone, data.eval_data)


def features_cache_key(config: RunConfig, data: RunData) -> str:
    """Key of cached features: network, seed of random weights, learner, images."""
    seed = config.seed if config.model.pretrained is None else None
    parts: Mapping[str, object] = {
        "model": config.model.model_dump(include={"backbone", "pretrained", "pooling"}),
        "learner": config.learner.model_dump(),
        "transform": config.data.transform,
        "data": data.dataset.fingerprint,
        "seed": seed,
    }
    return str(parts)
