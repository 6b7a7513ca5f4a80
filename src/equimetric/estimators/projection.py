"""A network from feature vectors to embeddings, and the steps that train it."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from equimetric.backbones import init_head_by_pca
from equimetric.batches import build_batches
from equimetric.errors import EquimetricError, quote
from equimetric.learners.single import run_epoch_hooks
from equimetric.objectives import Context, Objective, ObjectiveSum, build_objective
from equimetric.objectives.objective import collect_proxies
from equimetric.references.batch import BatchReferences
from equimetric.references.prototypes import PrototypeReferences
from equimetric.seeding import derive_seed

__all__ = [
    "ProjectionBudget",
    "build_or_copy_objective",
    "build_projection",
    "check_widths",
    "require_learnable",
    "train_projection",
]

EPOCH = 100
"""Steps between epoch hooks, in which objectives may read the whole training set."""


@dataclass(frozen=True)
class ProjectionBudget:
    """Steps, batches of `classes` × `samples` rows, and learning rates, which fall to 0 by a half cosine."""

    steps: int
    classes: int
    samples: int
    lr: float
    weight_decay: float
    objective_lr: float


def check_widths(hidden: Any) -> None:
    """Raise an error unless these are the widths of any number of hidden layers."""
    is_sequence = isinstance(hidden, Sequence | np.ndarray)
    if not is_sequence or any(isinstance(n, bool) or not isinstance(n, Integral) or n < 1 for n in hidden):
        raise EquimetricError(
            f"hidden is {quote(hidden)}; give the widths of the layers, whole numbers of 1 or more, such as (128,)"
        )


def build_projection(vectors: Tensor, hidden: Sequence[int], dim: int) -> nn.Sequential:
    """Linear layers with GELU between them: (N, D) → (N, dim).

    A single layer starts at the principal components of the vectors, where there are as many as `dim`.
    """
    widths = [vectors.shape[1], *map(int, hidden), dim]
    layers: list[nn.Module] = []
    for width, following in itertools.pairwise(widths):
        layers += [nn.Linear(width, following), nn.GELU()]
    network = nn.Sequential(*layers[:-1]).to(vectors.dtype)
    if len(widths) == 2 and dim <= min(vectors.shape[1], len(vectors) - 1):
        init_head_by_pca(network, vectors)
    return network


def build_or_copy_objective(
    objective: str | Objective | ObjectiveSum, options: Mapping[str, Any] | None, context: Context
) -> Objective | ObjectiveSum:
    """The objective of a name, sized by the data; or a copy of an objective, which training may change."""
    if isinstance(objective, str):
        return build_objective(objective, dict(options or {}), context)
    if not isinstance(objective, Objective | ObjectiveSum):
        raise EquimetricError(
            f"objective is the name of a method or an Objective, not {type(objective).__name__}; "
            "wrap a function of pairs as em.objective(function)"
        )
    if options:
        raise EquimetricError(
            "options belong to the name of a method; this objective is made already, so set them there"
        )
    return copy.deepcopy(objective)


def require_learnable(objective: Objective | ObjectiveSum, samples: int) -> None:
    """Raise an error where an objective compares rows of a batch, and every row is of another class."""
    references = [part.references for _, part in objective.parts()]
    in_batch = all(isinstance(one, BatchReferences | PrototypeReferences) for one in references)
    if samples == 1 and in_batch and not collect_proxies([part for _, part in objective.parts()]):
        raise EquimetricError(
            f"samples is 1, so that no batch has two rows of a class, which {objective.name!r} compares; give 2 or more"
        )


def train_projection(
    network: nn.Module,
    objective: Objective | ObjectiveSum,
    vectors: Tensor,
    labels: Tensor,
    budget: ProjectionBudget,
    seed: int,
) -> None:
    """Minimise the objective of batches of (N, D) vectors with (N,) class ids 0 … C − 1, in place."""
    groups = [
        {"params": list(network.parameters()), "lr": budget.lr, "weight_decay": budget.weight_decay},
        {"params": list(objective.parameters()), "lr": budget.objective_lr, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]])
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(1.0, step / budget.steps)))
    )
    batches = build_batches(
        "class_balanced",
        labels,
        classes=min(budget.classes, int(labels.max()) + 1),
        samples=budget.samples,
        batches=budget.steps,
        seed=derive_seed(seed, "batches"),
    )
    for step in range(budget.steps):
        if step % EPOCH == 0:
            with torch.no_grad():
                run_epoch_hooks(objective, lambda: network(vectors), labels)
        torch.manual_seed(derive_seed(seed, "step", step))
        objective.set_step(step)
        rows = batches.batch(step)
        optimizer.zero_grad()
        loss = objective(network(vectors[rows]), labels[rows], index=rows)
        if not loss.isfinite():
            raise EquimetricError(
                f"the loss is {loss.item()} at step {step}; choose a smaller lr or scale the features"
            )
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
