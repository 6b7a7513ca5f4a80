"""`MetricLearner`: any objective of this package as an estimator of scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.nn import functional as F

from equimetric.calibration import calibrate
from equimetric.calibration.targets import FalseAccepts
from equimetric.errors import EquimetricError, EquimetricWarning, quote
from equimetric.estimators.projection import (
    ProjectionBudget,
    build_or_copy_objective,
    build_projection,
    check_widths,
    require_learnable,
    train_projection,
)
from equimetric.evaluation import evaluate
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.evaluation.metrics.roc import MIN_ERRORS
from equimetric.objectives import Context, Objective, ObjectiveSum
from equimetric.option_values import NonNegativeFloat, PositiveFloat, PositiveInt, check_options
from equimetric.seeding import derive_seed

__all__ = ["MetricLearner"]

LARGEST = 64
"""Dimension of embeddings of vectors that have more, unless `n_components` says otherwise."""

FOLDS = 2
"""Parts of the held-out classes, each of which needs two classes."""


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn to embed feature vectors of any kind (text, audio, tables) so that a class lies close together.

    `fit(X, y)`, `transform(X)`, `score(X, y)` and `same(X1, X2)`; works in pipelines and searches of scikit-learn.

    objective      a method of `equimetric methods`, a sum such as "contrastive+tcm", or an `Objective`
    options        of the method, such as {"alpha": 2.0}
    n_components   dimension of the embedding; by default that of the vectors, or 64 where they have more
    hidden         widths of hidden layers; without any the embedding is linear and starts at principal components
    steps          optimiser steps (AdamW), each on a batch of `classes` × `samples` rows
    classes        in a batch; all of them where the data have fewer
    lr             learning rate of the network, `objective_lr` that of proxies and other parameters of the objective
    standardize    scale every feature to mean 0 and variance 1 first
    calibration    share of the classes that are not trained on and find the threshold of `same`; used where there are
                   enough of them for the rate `far`, 0 trains on all classes
    far            share of pairs of different classes that `same` may take for the same
    metric         of `score`, a name that `evaluate` takes
    random_state   seed of everything random

    After fitting: `network_`, `objective_`, `classes_`, `threshold_`, `held_out_classes_` (empty where all classes
    train), and `calibration_`, which states how well the threshold holds for new classes, or None.
    """

    def __init__(
        self,
        objective: str | Objective | ObjectiveSum = "multi_similarity",
        *,
        options: Mapping[str, Any] | None = None,
        n_components: PositiveInt | None = None,
        hidden: Sequence[PositiveInt] = (),
        steps: PositiveInt = 300,
        classes: PositiveInt = 32,
        samples: PositiveInt = 4,
        lr: PositiveFloat = 3e-3,
        weight_decay: NonNegativeFloat = 1e-4,
        objective_lr: PositiveFloat = 3e-2,
        standardize: bool = True,
        calibration: float = 0.25,
        far: float = 0.01,
        metric: str = "map@r",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.objective = objective
        self.options = options
        self.n_components = n_components
        self.hidden = hidden
        self.steps = steps
        self.classes = classes
        self.samples = samples
        self.lr = lr
        self.weight_decay = weight_decay
        self.objective_lr = objective_lr
        self.standardize = standardize
        self.calibration = calibration
        self.far = far
        self.metric = metric
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> MetricLearner:
        """Train on (N, D) vectors and their N classes, and find the threshold of `same`."""
        vectors, targets = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2)
        check_classification_targets(targets)
        self.classes_, codes = np.unique(targets, return_inverse=True)
        sizes = np.bincount(codes)
        if len(sizes) < 2 or sizes.max() < 2:
            raise EquimetricError(
                f"y has {len(sizes)} class{'es' if len(sizes) > 1 else ''}, the largest of {sizes.max()} samples; "
                "metric learning compares at least two classes, one of which has two samples"
            )
        self._require_parameters()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        held_out = self._held_out(sizes, derive_seed(seed, "held-out classes"))
        self.held_out_classes_ = self.classes_[held_out]
        self.mean_ = vectors.mean(0) if self.standardize else np.zeros_like(vectors[0])
        spread = vectors.std(0) if self.standardize else np.ones_like(vectors[0])
        self.scale_ = np.where(spread > 0, spread, 1)
        train = ~np.isin(codes, held_out)
        self._train(self._tensor(vectors[train]), np.unique(codes[train], return_inverse=True)[1], seed)
        calibration_rows = np.isin(codes, held_out) if len(held_out) else train
        self._calibrate(self._embed(vectors[calibration_rows]), codes[calibration_rows], seed)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """(N, n_components) embeddings, of unit length unless the objective compares raw vectors."""
        check_is_fitted(self)
        return self._embed(validate_data(self, X, dtype=[np.float64, np.float32], reset=False))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """The metric, MAP@R unless chosen otherwise, of searching every row among all others."""
        labels = np.unique(np.asarray(y), return_inverse=True)[1]
        evaluation = evaluate(self.transform(X), labels, metrics=[self.metric], geometry=self._geometry)
        return float(evaluation[self.metric])

    def same(self, X1: ArrayLike, X2: ArrayLike) -> NDArray[np.bool_]:
        """Whether row i of X1 and row i of X2 are of one class, (N,): their embeddings are closer than `threshold_`."""
        first, second = self.transform(X1), self.transform(X2)
        if len(first) != len(second):
            raise EquimetricError(f"X1 has {len(first)} rows and X2 {len(second)}; give pairs of rows")
        if not len(self.held_out_classes_):
            warnings.warn(
                "the threshold is that of the training classes, which lie closer together than new ones; fit on more "
                "classes for a threshold of held-out ones",
                EquimetricWarning,
                stacklevel=2,
            )
        closer: NDArray[np.bool_] = np.linalg.norm(first - second, axis=1) < self.threshold_
        return closer

    def _require_parameters(self) -> None:
        check_options("MetricLearner", MetricLearner, self.get_params(deep=False))
        if not 0 <= self.calibration < 1:
            raise EquimetricError(f"calibration is {self.calibration}; give a share of the classes from 0 to below 1")
        FalseAccepts(self.far)
        if not isinstance(self.options, Mapping | None) or not all(
            isinstance(name, str) for name in self.options or ()
        ):
            raise EquimetricError(f"options are {quote(self.options)}; give a dict of names and values, or None")
        check_widths(self.hidden)

    def _held_out(self, sizes: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """The classes that are not trained on, in any order; none where they could not calibrate."""
        usable = np.flatnonzero(sizes > 1)
        chosen = np.random.default_rng(seed).permutation(usable)[: int(self.calibration * len(usable))]
        # Whichever classes a fold has, it has no fewer pairs than the smallest ones.
        smallest = np.sort(sizes[chosen])[: len(chosen) // FOLDS]
        pairs = (smallest.sum() ** 2 - (smallest**2).sum()) // 2
        has_support = len(chosen) >= 2 * FOLDS and pairs * self.far >= MIN_ERRORS
        return np.sort(chosen) if has_support else chosen[:0]

    def _train(self, vectors: Tensor, codes: NDArray[np.int64], seed: int) -> None:
        labels = torch.from_numpy(codes)
        dim = min(LARGEST, vectors.shape[1]) if self.n_components is None else int(self.n_components)
        context = Context(classes=int(labels.max()) + 1, dim=dim, images=len(labels))
        budget = ProjectionBudget(self.steps, self.classes, self.samples, self.lr, self.weight_decay, self.objective_lr)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(derive_seed(seed, "network"))
            self.network_ = build_projection(vectors, self.hidden, dim)
            torch.manual_seed(derive_seed(seed, "objective"))
            self.objective_ = build_or_copy_objective(self.objective, self.options, context).to(vectors.dtype)
            require_learnable(self.objective_, self.samples)
            train_projection(self.network_, self.objective_, vectors, labels, budget, seed)
        self.network_.requires_grad_(False).eval()

    def _calibrate(self, embeddings: NDArray[Any], codes: NDArray[np.int64], seed: int) -> None:
        self.calibration_ = None
        if len(self.held_out_classes_):
            names = dict(enumerate(map(str, self.classes_)))
            self.calibration_ = calibrate(
                embeddings, codes, far=self.far, geometry=self._geometry, folds=FOLDS, class_names=names, seed=seed
            )
            self.threshold_ = self.calibration_.threshold
        else:
            sets = prepare_sets(embeddings, codes, geometry=self._geometry)
            self.threshold_ = FalseAccepts(self.far).threshold(pair_distances(sets))

    @property
    def _geometry(self) -> Any:
        return "cosine" if self._unit_length else "euclidean"

    @property
    def _unit_length(self) -> bool:
        return all(part.normalize for _, part in self.objective_.parts())

    @property
    def _n_features_out(self) -> int:
        return self._last.out_features

    @property
    def _last(self) -> nn.Linear:
        last = self.network_[-1]
        assert isinstance(last, nn.Linear)
        return last

    def _tensor(self, vectors: NDArray[Any]) -> Tensor:
        return torch.from_numpy((vectors - self.mean_.astype(vectors.dtype)) / self.scale_.astype(vectors.dtype))

    @torch.no_grad()
    def _embed(self, vectors: NDArray[Any]) -> NDArray[Any]:
        embeddings = self.network_(self._tensor(vectors).to(self._last.weight.dtype))
        if self._unit_length:
            embeddings = F.normalize(embeddings)
        array: NDArray[Any] = embeddings.numpy().astype(vectors.dtype, copy=False)
        return array

    def __sklearn_tags__(self) -> Any:
        """Needs classes; keeps the precision of the vectors."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
