"""What a threshold promises for unseen classes: upper bounds of FAR and FRR.

    bound = rate · exp(t_{C−1} · se)

se is the standard error of log(rate) from deleting one of C classes at a time, with both ends of its pairs, and t the
one-sided quantile of Student's distribution. Pairs share classes, so that a bound from the number of pairs would be
far too low.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from equimetric.evaluation.engine.arrays import Floats

__all__ = ["NewClassBounds", "bound_new_classes"]

MIN_CLASSES = 10


@dataclass(frozen=True)
class NewClassBounds:
    """Upper bounds of the rates that the threshold has over all classes such as the calibrated ones.

    far, frr    None where there is no bound
    confidence  of each bound
    reasons     one sentence for each bound that there is not
    """

    far: float | None
    frr: float | None
    confidence: float
    reasons: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types."""
        return {"far": self.far, "frr": self.frr, "confidence": self.confidence, "reasons": list(self.reasons)}


def bound_new_classes(counts: Floats, confidence: float) -> NewClassBounds:
    """Bounds from (accepted negatives, accepted positives, negatives, positives) of every class, (C, 4)."""
    accepted, accepted_positives, negatives, positives = counts.T
    far, far_reason = _upper_bound(accepted, negatives, 2, confidence, "FAR", "accepted negative")
    frr, frr_reason = _upper_bound(positives - accepted_positives, positives, 1, confidence, "FRR", "rejected positive")
    return NewClassBounds(far, frr, confidence, tuple(reason for reason in (far_reason, frr_reason) if reason))


def _upper_bound(
    errors: Floats, pairs: Floats, ends: int, confidence: float, rate: str, error_kind: str
) -> tuple[float | None, str]:
    """The bound, or the reason why there is none; a pair is counted for the classes at its `ends`."""
    from scipy.special import stdtrit

    errors, pairs = errors[pairs > 0], pairs[pairs > 0]
    classes, all_errors, all_pairs = len(pairs), errors.sum() / ends, pairs.sum() / ends
    remaining = all_errors - errors
    if classes < MIN_CLASSES:
        return None, (
            f"no bound of the {rate} for new classes: {classes} classes have such pairs, and {MIN_CLASSES} are needed"
        )
    if all_errors <= 0:
        return None, f"no bound of the {rate} for new classes: there is no {error_kind} pair"
    # Counts may be interpolated: less than half a pair is none.
    if remaining.min() < 0.5:
        return None, f"no bound of the {rate} for new classes: one class has a part in every {error_kind} pair"
    log_rates = np.log(remaining / (all_pairs - pairs))
    error = math.sqrt((classes - 1) / classes * float(np.square(log_rates - log_rates.mean()).sum()))
    return min(1.0, float(all_errors / all_pairs) * math.exp(float(stdtrit(classes - 1, confidence)) * error)), ""
