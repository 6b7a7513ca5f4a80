"""Equimetric: deep metric learning with fair comparison built in.

import equimetric as em

loss = em.objective("multi_similarity", alpha=2.0)
loss(embeddings, labels).backward()

em.evaluate(embeddings, labels)          # Recall@K, R-Precision, MAP@R, OPIS, …
em.calibrate(embeddings, labels)         # the threshold for a target false accept rate
em.train(config)                         # one model
em.refit(run)                            # its final model, on more classes
em.compare(study)                        # a fair comparison of methods
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equimetric.calibration import Calibration, Certificate, calibrate
    from equimetric.components import LOSSES, SELECTIONS, loss, selection
    from equimetric.data import Dataset, load_dataset
    from equimetric.deployment.embedder import Embedder
    from equimetric.deployment.export import export_run
    from equimetric.deployment.load import load
    from equimetric.errors import EquimetricError
    from equimetric.estimators import MetricLearner
    from equimetric.evaluation import (
        Accumulator,
        Cohort,
        Evaluation,
        evaluate,
        evaluate_identification,
        evaluate_trials,
        threshold_consistency,
    )
    from equimetric.explain import pair_weights
    from equimetric.gallery import Gallery
    from equimetric.geometry import GEOMETRIES, Geometry
    from equimetric.objectives.composition import objective
    from equimetric.objectives.objective import Objective, ObjectiveSum
    from equimetric.objectives.recipes import recipes
    from equimetric.pairs import Pairs, TripletBand, Triplets
    from equimetric.references.proxies import StaticProxy
    from equimetric.runs.model import TrainedModel
    from equimetric.studies import compare
    from equimetric.training import refit, train

__all__ = [
    "GEOMETRIES",
    "LOSSES",
    "SELECTIONS",
    "Accumulator",
    "Calibration",
    "Certificate",
    "Cohort",
    "Dataset",
    "Embedder",
    "EquimetricError",
    "Evaluation",
    "Gallery",
    "Geometry",
    "MetricLearner",
    "Objective",
    "ObjectiveSum",
    "Pairs",
    "StaticProxy",
    "TrainedModel",
    "TripletBand",
    "Triplets",
    "calibrate",
    "compare",
    "evaluate",
    "evaluate_identification",
    "evaluate_trials",
    "export_run",
    "load",
    "load_dataset",
    "loss",
    "objective",
    "pair_weights",
    "recipes",
    "refit",
    "selection",
    "threshold_consistency",
    "train",
]

_MODULES = {
    "GEOMETRIES": "geometry",
    "LOSSES": "components",
    "SELECTIONS": "components",
    "Accumulator": "evaluation",
    "Calibration": "calibration",
    "Certificate": "calibration",
    "Cohort": "evaluation",
    "Dataset": "data",
    "Embedder": "deployment.embedder",
    "EquimetricError": "errors",
    "Evaluation": "evaluation",
    "Gallery": "gallery",
    "Geometry": "geometry",
    "MetricLearner": "estimators",
    "Objective": "objectives.objective",
    "ObjectiveSum": "objectives.objective",
    "Pairs": "pairs",
    "StaticProxy": "references.proxies",
    "TrainedModel": "runs.model",
    "TripletBand": "pairs",
    "Triplets": "pairs",
    "calibrate": "calibration",
    "compare": "studies",
    "evaluate": "evaluation",
    "evaluate_identification": "evaluation",
    "evaluate_trials": "evaluation",
    "export_run": "deployment.export",
    "load": "deployment.load",
    "load_dataset": "data",
    "loss": "components",
    "objective": "objectives.composition",
    "pair_weights": "explain",
    "recipes": "objectives.recipes",
    "refit": "training",
    "selection": "components",
    "threshold_consistency": "evaluation",
    "train": "training",
}
"""Public name → module. Imported on first use: the command line answers without torch, a loss costs only torch."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'equimetric' has no attribute {name!r}")
    # Kept, because importing a module of the same name (`equimetric.selection`) would shadow it.
    value = globals()[name] = getattr(import_module(f"equimetric.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
