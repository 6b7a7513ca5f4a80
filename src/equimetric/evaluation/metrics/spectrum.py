"""Spectral decay (ρ): how evenly the vectors use the directions of their space.

Roth et al.: Revisiting training strategies and generalization performance in deep metric learning (2020). With a
separate gallery it describes the queries.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.label_sets import MultiLabelSets
from equimetric.evaluation.engine.mapped_vectors import Vectors
from equimetric.evaluation.evidence import Detail, Evidence, Score
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.resampling.class_statistics import ClassStatistic, shift_to_value
from equimetric.evaluation.result import Evaluation
from equimetric.ops.blocks import slices

__all__ = ["SingularValues", "Spectrum", "singular_values", "spectral_decay"]

MIN_SPECTRUM_SHARE = 1e-12
"""Lower bound of the shares of the spectrum: a dimension that is not used at all costs log(10^12)/D."""
SPECTRUM_ROWS = 4096


@dataclass(frozen=True)
class SingularValues(Detail):
    """Singular values (D,) of all vectors; squared lengths of each class (C, D) along the singular directions."""

    singular_values: Floats
    class_spectrum: Floats


def singular_values(vectors: Vectors) -> Tensor:
    """Singular values of the (N, D) matrix of vectors, not centred: (min(N, D),) float64, falling.

    X and the triangle R of X = QR have the same ones. R grows block by block; unlike those of XᵀX, its singular
    values are exact up to rounding, so an unused dimension shows as unused.
    """
    triangle = vectors[:0].double()
    for rows in slices(len(vectors), max(SPECTRUM_ROWS, vectors.shape[1])):
        triangle = torch.linalg.qr(torch.cat([triangle, vectors[rows].double()]), mode="r").R
    values: Tensor = torch.linalg.svdvals(triangle)
    return values


def spectral_decay(values: Tensor, *, reverse: bool = False, drop: int = 0) -> float:
    """ρ = KL(uniform ‖ spectrum) of the singular values as shares of their sum; 0 where all directions are equal.

    reverse  KL(spectrum ‖ uniform) instead
    drop     omit the n largest singular values
    """
    if not 0 <= drop < len(values):
        raise EquimetricError(f"{drop} of {len(values)} singular values cannot be dropped; keep at least one")
    remaining = values.sort(descending=True).values[drop:].double()
    share = (remaining / remaining.sum()).clamp(min=MIN_SPECTRUM_SHARE)
    log_ratio = (share * len(remaining)).log()
    return float((share * log_ratio).sum() if reverse else -log_ratio.mean())


class Spectrum(Collector):
    """The singular values of the queries."""

    reads_tiles = False

    def finish(self) -> None:
        """Compute them once for all metrics."""
        points, dimension = self.sets.queries.shape
        if points < dimension:
            raise EquimetricError(
                f"the spectral decay of {dimension} dimensions needs at least as many vectors, and there are {points}; "
                "give more, or leave the metric out"
            )
        self.values = singular_values(self.sets.queries)

    @cached_property
    def by_class(self) -> Tensor:
        """Squared lengths of each class along all singular directions, (C, D); they add up to values²."""
        vectors, blocks = self.sets.queries, slices(len(self.sets.queries), SPECTRUM_ROWS)
        products = torch.zeros(vectors.shape[1], vectors.shape[1], dtype=torch.float64, device=vectors.device)
        for rows in blocks:
            products.addmm_(vectors[rows].double().T, vectors[rows].double())
        directions: Tensor = torch.linalg.eigh(products).eigenvectors
        squares = directions.new_zeros(len(self.sets.class_labels), vectors.shape[1])
        for rows in blocks:
            squares.index_add_(0, self.sets.query_classes[rows], (vectors[rows].double() @ directions).square_())
        return squares


def _resample(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
    """Decay of squared singular values Σ w_c e_ck, which is right to first order.

    e_ck is the squared length of class c along the k-th singular direction of all vectors.
    """
    spectrum = evaluation.detail(SingularValues)
    if spectrum is None:
        return None
    present = np.flatnonzero(spectrum.class_spectrum.sum(axis=1) > 0)
    squares = spectrum.class_spectrum[present]

    def of_weights(weights: Floats) -> Floats:
        drawn = torch.from_numpy(weights @ squares).clamp_(min=0).sqrt_()
        return np.array([spectral_decay(values, **metric.parameters) for values in drawn])

    return shift_to_value(evaluation[metric.name], ClassStatistic(present, of_weights))


@metric(
    "spectral_decay",
    higher_is_better=False,
    pattern=r"spectral_decay(?P<reverse>_reverse)?(?:@drop=(?P<drop>[0-9]+))?",
    parameters={"reverse": bool, "drop": int},
    defaults={"reverse": False, "drop": 0},
    examples=("spectral_decay", "spectral_decay_reverse", "spectral_decay@drop=1"),
    collectors=(Spectrum,),
    resample=_resample,
    percent=False,
    multi_label=True,
)
def _decay(metric: Metric, evidence: Evidence) -> Score:
    """Spectral decay: divergence of the singular values from equal ones."""
    spectrum = evidence[Spectrum]
    value = spectral_decay(spectrum.values, **metric.parameters)
    if isinstance(evidence.sets, MultiLabelSets):
        return Score(value)
    return Score(value, details=(SingularValues(spectrum.values.cpu().numpy(), spectrum.by_class.cpu().numpy()),))
