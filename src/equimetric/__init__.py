"""Equimetric: deep metric learning with fair comparison built in.

import equimetric as em

loss = em.objective("multi_similarity", alpha=2.0)
loss(embeddings, labels).backward()

em.evaluate(embeddings, labels)          # Recall@K, R-Precision, MAP@R, OPIS, …
em.calibrate(embeddings, labels)         # the threshold for a wanted false accept rate
em.train(config)                         # one model
em.compare(study)                        # a fair comparison of methods
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from equimetric.catalogue import objective, recipes
from equimetric.errors import EquimetricError
from equimetric.geometry import GEOMETRIES
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.pairs import Pairs, TripletBand, Triplets
from equimetric.references.proxies import StaticProxy
from equimetric.registry import LOSSES, SELECTIONS, loss, selection

if TYPE_CHECKING:
    from equimetric.calibration import Calibration, calibrate
    from equimetric.data import Dataset, load_dataset
    from equimetric.evaluation import Evaluation, evaluate
    from equimetric.explain import pair_weights
    from equimetric.studies import compare
    from equimetric.training import train

__all__ = [
    "GEOMETRIES",
    "LOSSES",
    "SELECTIONS",
    "Calibration",
    "Dataset",
    "EquimetricError",
    "Evaluation",
    "Objective",
    "ObjectiveSum",
    "Pairs",
    "StaticProxy",
    "TripletBand",
    "Triplets",
    "calibrate",
    "compare",
    "evaluate",
    "load_dataset",
    "loss",
    "objective",
    "pair_weights",
    "recipes",
    "selection",
    "train",
]

# Imported on first use, so that a loss in a loop of one's own costs no more than torch itself.
_LATER = {
    "Calibration": "equimetric.calibration",
    "Dataset": "equimetric.data",
    "Evaluation": "equimetric.evaluation",
    "calibrate": "equimetric.calibration",
    "compare": "equimetric.studies",
    "evaluate": "equimetric.evaluation",
    "load_dataset": "equimetric.data",
    "pair_weights": "equimetric.explain",
    "train": "equimetric.training",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'equimetric' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
