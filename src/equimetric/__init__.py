"""Equimetric: deep metric learning with fair comparison built in.

import equimetric as em

loss = em.objective("multi_similarity", alpha=2.0)
loss(embeddings, labels).backward()
em.losses.triplet(margin=0.1)            # the same objectives as functions with typed options

em.evaluate(embeddings, labels)          # Recall@K, R-Precision, MAP@R, OPIS, …
em.calibrate(embeddings, labels)         # the threshold for a target false accept rate
em.train(config)                         # one model
em.refit(run)                            # its final model, on more classes
em.compare(study)                        # a fair comparison of methods
em.fit_model(photos, model)              # an exported model with its certificate, from a folder of images
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equimetric.calibration import Calibration, Certificate, calibrate
    from equimetric.components import LOSSES, SELECTIONS, loss, selection
    from equimetric.constructors import (
        backbones,
        batches,
        datasets,
        geometries,
        heads,
        learners,
        losses,
        references,
        selections,
    )
    from equimetric.data import Dataset, load_dataset
    from equimetric.deployment.embedder import Embedder
    from equimetric.deployment.export import export_run
    from equimetric.deployment.load import load
    from equimetric.errors import EquimetricError, EquimetricWarning
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
    from equimetric.explain import GradientEquivalence, gradient_equivalent, pair_weights
    from equimetric.fitting import fit_model
    from equimetric.gallery import Gallery
    from equimetric.geometry import GEOMETRIES, Geometry
    from equimetric.objectives.composition import objective
    from equimetric.objectives.objective import Objective, ObjectiveSum
    from equimetric.objectives.recipes import recipes
    from equimetric.pairs import Pairs, TripletBand, Triplets
    from equimetric.plugins import load_plugins
    from equimetric.references.proxies import StaticProxy
    from equimetric.runs.model import TrainedModel
    from equimetric.studies import compare
    from equimetric.training import refit, train

__version__ = "1.0.0"

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
    "EquimetricWarning",
    "Evaluation",
    "Gallery",
    "Geometry",
    "GradientEquivalence",
    "MetricLearner",
    "Objective",
    "ObjectiveSum",
    "Pairs",
    "StaticProxy",
    "TrainedModel",
    "TripletBand",
    "Triplets",
    "backbones",
    "batches",
    "calibrate",
    "compare",
    "datasets",
    "evaluate",
    "evaluate_identification",
    "evaluate_trials",
    "export_run",
    "fit_model",
    "geometries",
    "gradient_equivalent",
    "heads",
    "learners",
    "load",
    "load_dataset",
    "load_plugins",
    "loss",
    "losses",
    "objective",
    "pair_weights",
    "recipes",
    "references",
    "refit",
    "selection",
    "selections",
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
    "EquimetricWarning": "errors",
    "Evaluation": "evaluation",
    "Gallery": "gallery",
    "Geometry": "geometry",
    "GradientEquivalence": "explain",
    "MetricLearner": "estimators",
    "Objective": "objectives.objective",
    "ObjectiveSum": "objectives.objective",
    "Pairs": "pairs",
    "StaticProxy": "references.proxies",
    "TrainedModel": "runs.model",
    "TripletBand": "pairs",
    "Triplets": "pairs",
    "backbones": "constructors.backbones",
    "batches": "constructors.batches",
    "calibrate": "calibration",
    "compare": "studies",
    "datasets": "constructors.datasets",
    "evaluate": "evaluation",
    "evaluate_identification": "evaluation",
    "evaluate_trials": "evaluation",
    "export_run": "deployment.export",
    "geometries": "constructors.geometries",
    "gradient_equivalent": "explain",
    "heads": "constructors.heads",
    "learners": "constructors.learners",
    "fit_model": "fitting",
    "load": "deployment.load",
    "load_dataset": "data",
    "load_plugins": "plugins",
    "loss": "components",
    "losses": "constructors.losses",
    "objective": "objectives.composition",
    "pair_weights": "explain",
    "recipes": "objectives.recipes",
    "references": "constructors.references",
    "refit": "training",
    "selection": "components",
    "selections": "constructors.selections",
    "threshold_consistency": "evaluation",
    "train": "training",
}
"""Public name → module. Imported on first use: the command line answers without torch, a loss costs only torch."""


class _Package(ModuleType):
    """Keep public names when a subpackage of the same name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _MODULES and isinstance(value, ModuleType) and value.__name__ == f"{__name__}.{name}":
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'equimetric' has no attribute {name!r}")
    module = import_module(f"equimetric.{_MODULES[name]}")
    value = globals()[name] = module if _MODULES[name] == f"constructors.{name}" else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
