"""The thresholds of methods as a page holds them: exact counts, quantiles over the classes, and single classes."""

from __future__ import annotations

import base64
import gzip
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.escaping import printable
from equimetric.evaluation.metrics.utility_curves import group_size
from equimetric.evaluation.threshold_profile import ThresholdProfile
from equimetric.runs.profile import CertifiedPoint

__all__ = ["all_classes", "method_thresholds", "pack_counts", "pack_shares", "with_certified"]

SHARE_STEPS = 65535
"""Shares are sent as whole numbers of two bytes: to 8·10⁻⁶."""
LISTED_PER_WORST = 5
"""Classes of the best and the worst tenth that are named, for each class of lowest utility that is shown."""
GROUP_SHARE = 0.1
DENSITY_BINS = 48


def method_thresholds(
    profile: ThresholdProfile,
    names: Mapping[int, str],
    certified: CertifiedPoint | None = None,
    levels: int = 101,
    worst: int = 20,
) -> dict[str, Any]:
    """One method at every threshold: overall counts, quantiles of the rates of classes, and the worst classes.

    `names` are those of the classes; one that it lacks is called by its number. There are `levels` quantiles, evenly
    spaced, and `worst` classes. The certified threshold is one of the thresholds where its counts are known.
    """
    # Consistency is over evenly spaced thresholds, without the certified one.
    consistency = profile.consistency
    profile, _ = with_certified(profile, certified)
    utility = profile.utility
    order = np.argsort(consistency.mean_utility, kind="stable")
    group = group_size(GROUP_SHARE, len(order))
    called = [printable(names.get(int(number), str(number))) for number in profile.numbers]
    rates = {"far": profile.class_far, "frr": profile.class_frr, "utility": utility}
    return {
        "scored": profile.scored,
        "thresholds": profile.thresholds.tolist(),
        "calibration": list(profile.calibration),
        "positives": profile.positives,
        "negatives": profile.negatives,
        "positive": profile.positive.tolist(),
        "negative": profile.negative.tolist(),
        "classes": len(order),
        "opis": consistency.opis,
        "opis10": consistency.epsilon_opis(GROUP_SHARE),
        "mean": round_list(utility.mean(axis=0)),
        "deviation": round_list(utility.std(axis=0)),
        "levels": levels,
        "quantiles": {
            name: pack_shares(np.quantile(values, np.linspace(0, 1, levels), axis=0)) for name, values in rates.items()
        },
        "density": density(utility),
        "groups": {
            kind: {
                "classes": group,
                "named": [called[place] for place in members[: LISTED_PER_WORST * worst]],
                "mean": round_list(utility[members].mean(axis=0)),
            }
            for kind, members in (("worst", order[:group]), ("best", order[::-1][:group]))
        },
        "worst": [one_class(profile, int(place), called[place]) for place in order[:worst]],
        "certified": None if certified is None else describe_certificate(certified),
    }


def with_certified(profile: ThresholdProfile, certified: CertifiedPoint | None) -> tuple[ThresholdProfile, int | None]:
    """The profile with the certified threshold among its thresholds, and its place; None where it has no counts."""
    counts = None if certified is None else certified.counts
    if counts is None or not np.array_equal(counts.numbers, profile.numbers):
        return profile, None
    # Before a threshold of the same value, which accepts pairs at its own distance, too.
    place = int(np.searchsorted(profile.thresholds, counts.thresholds[0]))
    inserted = {
        name: np.insert(getattr(profile, name), place, getattr(counts, name)[..., 0], axis=-1)
        for name in ("thresholds", "positive", "negative", "class_positive", "class_negative")
    }
    first, last = profile.calibration
    return replace(profile, **inserted, calibration=(first + (place <= first), last + (place < last))), place


def one_class(profile: ThresholdProfile, place: int, name: str) -> dict[str, Any]:
    """The accepted pairs of one class at every threshold."""
    return {
        "name": name,
        "positives": int(profile.class_positives[place]),
        "negatives": int(profile.class_negatives[place]),
        "positive": profile.class_positive[place].tolist(),
        "negative": profile.class_negative[place].tolist(),
    }


def all_classes(
    profile: ThresholdProfile, names: Mapping[int, str], stride: int, certified: CertifiedPoint | None = None
) -> dict[str, Any]:
    """The accepted pairs of all classes at every `stride`-th threshold and at the certified one, compressed."""
    profile, place = with_certified(profile, certified)
    kept = np.arange(0, len(profile.thresholds), stride)
    kept = kept if place is None else np.union1d(kept, [place])
    return {
        "kept": kept.tolist(),
        "names": [printable(names.get(int(number), str(number))) for number in profile.numbers],
        "positives": pack_counts(profile.class_positives),
        "negatives": pack_counts(profile.class_negatives),
        "positive": pack_counts(np.diff(profile.class_positive[:, kept], axis=1, prepend=0)),
        "negative": pack_counts(np.diff(profile.class_negative[:, kept], axis=1, prepend=0)),
    }


def density(utility: NDArray[np.float64]) -> dict[str, Any]:
    """How many curves pass through each cell of thresholds × utilities, at most 255 for the fullest."""
    place = np.clip((utility * DENSITY_BINS).astype(np.int64), 0, DENSITY_BINS - 1)
    counts = np.stack([np.bincount(column, minlength=DENSITY_BINS) for column in place.T])
    # Square roots keep single curves visible beside thousands.
    shade = np.rint(255 * np.sqrt(counts / counts.max())).astype(np.uint8)
    return {"bins": DENSITY_BINS, "shade": base64.b64encode(shade.tobytes()).decode()}


def describe_certificate(point: CertifiedPoint) -> dict[str, Any]:
    """The certificate as plain types; a missing bound is None."""
    return {name: None if math.isnan(value) else value for name, value in point.numbers.items()}


def pack_shares(values: NDArray[np.float64]) -> str:
    """Shares (Q, G) as whole numbers of two bytes, in base64."""
    return base64.b64encode(np.rint(values * SHARE_STEPS).astype("<u2").tobytes()).decode()


def pack_counts(values: NDArray[Any]) -> str:
    """Counts as whole numbers of four bytes, byte planes apart, compressed, in base64."""
    planes = np.ascontiguousarray(values, "<u4").reshape(-1).view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(gzip.compress(planes.tobytes(), 6, mtime=0)).decode()


def round_list(values: Sequence[float] | NDArray[np.float64]) -> list[float]:
    """Numbers to six decimals."""
    return [round(float(value), 6) for value in values]
