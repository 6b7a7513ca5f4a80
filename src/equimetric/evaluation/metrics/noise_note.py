"""The sentence that says when a consistency score mostly measures sampling noise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from equimetric.evaluation.engine.arrays import Integers
from equimetric.evaluation.metrics.utility_curves import SCORE_NAMES, Consistency, Rate

__all__ = ["add_noise_note"]

FEW_IMAGES = 10
"""In a median class of fewer images, sampling noise alone makes most of the score."""
LARGE_SHARE = 0.5
"""From this share of the score on, noise is most of what it measures."""


def add_noise_note(by_rate: Mapping[Rate, Consistency], class_sizes: Integers | None = None) -> dict[Rate, Consistency]:
    """Add one sentence to all scores where classes are small or noise is above half of a score.

    class_sizes  images of every class; None for data sets
    """
    note = _describe_noise(list(by_rate.values()), None if class_sizes is None else float(np.median(class_sizes)))
    return {rate: replace(consistency, note=note) for rate, consistency in by_rate.items()}


def _describe_noise(consistencies: Sequence[Consistency], median: float | None) -> str | None:
    if median is not None and median < FEW_IMAGES:
        return (
            f"Threshold consistency mostly measures sampling noise here: the median class has {median:g} images, and "
            f"{FEW_IMAGES} are needed to tell classes apart."
        )
    noisy = [
        (SCORE_NAMES[consistency.rate], consistency.noise.value, consistency.opis)
        for consistency in consistencies
        if consistency.noise is not None and consistency.noise.value > LARGE_SHARE * consistency.opis
    ]
    if not noisy:
        return None
    names, expected, measured = zip(*noisy, strict=True)
    verb, was = ("measures", "was") if len(noisy) == 1 else ("measure", "were")
    return (
        f"{_list(names)} mostly {verb} sampling noise here: {_list(_shorten(measured))} {was} found, "
        f"and sampling alone would give about {_list(_shorten(expected))}."
    )


def _shorten(values: Sequence[float]) -> list[str]:
    return [f"{value:.2g}" for value in values]


def _list(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
