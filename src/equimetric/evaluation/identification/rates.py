"""Error rates of identification, as pure functions of the scores (terms of ISO/IEC 19795).

FPIR(t) = strangers with an accepted gallery entry / strangers
FNIR(t) = mated probes whose own identity is not the accepted best / mated probes

Entries at a distance below t are accepted.
"""

import math

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.identification.scores import IdentificationScores

__all__ = ["check_fpir", "fnir_at", "fnir_by_class", "fpir_at", "threshold_at_fpir"]


def fpir_at(scores: IdentificationScores, thresholds: Floats) -> Floats:
    """(T,) the share of strangers with an accepted entry."""
    nearest = np.sort(scores.distance[scores.stranger, 0])
    return np.asarray(np.searchsorted(nearest, thresholds, "left") / max(1, len(nearest)))


def fnir_at(scores: IdentificationScores, thresholds: Floats) -> Floats:
    """(T,) the share of mated probes that are not named by the accepted entries."""
    distance, change = scores.named_changes()
    order = np.argsort(distance, axis=None)
    named = np.append(0, change.ravel()[order].cumsum())
    accepted = np.searchsorted(distance.ravel()[order], thresholds, "left")
    return np.asarray(1 - named[accepted] / max(1, scores.mated))


def fnir_by_class(scores: IdentificationScores, classes: int, threshold: float) -> Floats:
    """(C,) FNIR of the probes of each class; NaN for a class without a mated probe."""
    probe_class = scores.probe_class[~scores.stranger]
    distance, change = scores.named_changes()
    named = np.bincount(probe_class, np.where(distance < threshold, change, 0.0).sum(1), minlength=classes)
    sizes = np.bincount(probe_class, minlength=classes)
    return np.where(sizes > 0, 1 - named / np.maximum(1, sizes), np.nan)


def threshold_at_fpir(scores: IdentificationScores, fpir: float) -> float:
    """The largest threshold whose FPIR is at most this: the (k+1)-th smallest distance, k = ⌊fpir · strangers⌋."""
    check_fpir(fpir)
    nearest = np.sort(scores.distance[scores.stranger, 0])
    return float(nearest[min(math.floor(fpir * len(nearest) + 1e-9), len(nearest) - 1)])


def check_fpir(fpir: float) -> float:
    """The rate itself; an error where it is not between 0 and 1."""
    if not 0 < fpir < 1:
        raise EquimetricError(f"the false positive identification rate {fpir} is not between 0 and 1")
    return fpir
