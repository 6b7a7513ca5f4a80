"""Alignment: how close the samples of one class are.

Wang, Isola: Understanding contrastive representation learning through alignment and uniformity on the hypersphere
(2020). With a separate gallery it is taken over the compared pairs of a query and a gallery item.
"""

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.class_distances import distances_within_classes
from equimetric.evaluation.engine.exact import row_norms
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.evidence import Evidence, Score
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.resampling.class_statistics import resample_positive_pairs
from equimetric.ops.blocks import sum_by_group

__all__ = ["DECIMAL", "alignment", "check_vector_distances"]

DECIMAL = r"[0-9]+(?:\.[0-9]+)?"


def alignment(sets: LabelledSets, alpha: float = 2.0) -> tuple[float, Tensor]:
    """Mean of d^α over the compared positive pairs, d Euclidean: of all, and of each class (C,).

    For α = 2 from the sums of each class:  Σ d² = n_g Σ ‖q‖² + n_q Σ ‖g‖² − 2 ⟨Σ q, Σ g⟩.
    """
    _check_alpha(alpha)
    check_vector_distances(sets, "alignment")
    if alpha == 2:
        totals = _sum_squared_distances(sets)
    else:
        totals = torch.zeros(len(sets.class_labels), dtype=torch.float64, device=sets.queries.device)
        compared = sets.queries, sets.query_classes, sets.gallery_vectors, sets.gallery_classes
        for class_index, block in distances_within_classes(*compared):
            totals[class_index] += block.pow(alpha).sum()
    if sets.excluded is not None:
        query, item = sets.excluded[
            sets.query_classes[sets.excluded[:, 0]] == sets.gallery_classes[sets.excluded[:, 1]]
        ].T
        difference = sets.queries[query].double() - sets.gallery_vectors[item].double()
        totals.index_add_(0, sets.query_classes[query], -torch.linalg.vector_norm(difference, dim=1).pow(alpha))
    pairs = torch.zeros_like(totals).index_add_(0, sets.query_classes, sets.num_relevant.double())
    return float(totals.sum() / pairs.sum()), totals / pairs.masked_fill(pairs == 0, torch.nan)


def check_vector_distances(sets: LabelledSets, metric: str) -> None:
    """Raise an error for a geometry without Euclidean distances."""
    if sets.geometry not in ("cosine", "euclidean"):
        raise EquimetricError(f"{metric} is made of distances of vectors; use geometry 'cosine' or 'euclidean'")


def _check_alpha(alpha: float) -> float:
    if not alpha > 0:
        raise EquimetricError(f"alpha is {alpha}; alignment needs a power above zero")
    return alpha


@metric(
    "alignment@alpha=A",
    higher_is_better=False,
    pattern=rf"alignment(?:@alpha=(?P<alpha>{DECIMAL}))?",
    parameters={"alpha": lambda text: _check_alpha(float(text))},
    defaults={"alpha": 2.0},
    examples=("alignment", "alignment@alpha=1"),
    resample=resample_positive_pairs,
    percent=False,
    macro=True,
)
def _alignment(metric: Metric, evidence: Evidence) -> Score:
    """Alignment: mean of the distance to the power A (default 2) over positive pairs."""
    value, per_class = alignment(evidence.sets, metric["alpha"])
    return Score(value, per_class=per_class)


def _sum_squared_distances(sets: LabelledSets) -> Tensor:
    """Σ d² over all pairs of a query and a gallery item of each class, a query and itself included: (C,)."""
    sizes, squared_norms, sums = [], [], []
    for vectors, classes in ((sets.queries, sets.query_classes), (sets.gallery_vectors, sets.gallery_classes)):
        count = len(sets.class_labels)
        squared = row_norms(vectors).square()
        sizes.append(classes.bincount(minlength=count))
        squared_norms.append(sum_by_group(squared[:, None], classes, count).squeeze(1))
        sums.append(sum_by_group(vectors, classes, count))
    products: Tensor = torch.linalg.vecdot(*sums)
    return (sizes[1] * squared_norms[0] + sizes[0] * squared_norms[1] - 2 * products).clamp(min=0)
