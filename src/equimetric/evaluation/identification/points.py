"""`IdentificationRates`: both rates at one threshold, with intervals over classes."""

from dataclasses import dataclass

from equimetric.evaluation.engine.arrays import RateInterval
from equimetric.evaluation.identification.jackknife import jackknife_fnir, jackknife_fpir
from equimetric.evaluation.identification.rates import threshold_at_fpir
from equimetric.evaluation.identification.scores import IdentificationScores

__all__ = ["IdentificationRates", "rates_at_fpir", "rates_at_threshold"]


@dataclass(frozen=True)
class IdentificationRates:
    """Both rates at one threshold, with intervals over classes; None where there is nothing to tell them by.

    fnir_interval  at this threshold, or at this FPIR where the point was found by it
    """

    threshold: float
    fpir: float
    fnir: float
    fpir_interval: RateInterval | None = None
    fnir_interval: RateInterval | None = None
    target_fpir: float | None = None

    @property
    def rank1(self) -> float:
        """Open-set rank-1 rate, 1 − FNIR: mated probes that are found and named."""
        return 1 - self.fnir


def rates_at_threshold(
    scores: IdentificationScores, classes: int, threshold: float, confidence: float, fpir: float | None = None
) -> IdentificationRates:
    """Both rates at a threshold, which may be that of an FPIR."""
    fpir_estimate = jackknife_fpir(scores, classes, threshold)
    fnir_estimate = jackknife_fnir(scores, classes, threshold, fpir)
    intervals = fpir_estimate.interval(confidence), fnir_estimate.interval(confidence)
    return IdentificationRates(threshold, fpir_estimate.value, fnir_estimate.value, *intervals, fpir)


def rates_at_fpir(scores: IdentificationScores, classes: int, fpir: float, confidence: float) -> IdentificationRates:
    """Both rates at the largest threshold whose FPIR is at most this."""
    return rates_at_threshold(scores, classes, threshold_at_fpir(scores, fpir), confidence, fpir)
