"""Two spaces of digits in a plane: equal accuracy, unequal spread, and so no equal threshold."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equimetric.evaluation import evaluate
from equimetric.seeding import derive_seed

__all__ = ["DigitPlane", "digit_planes"]

DIGITS, IMAGES = 10, 24
EVEN, UNEVEN = (0.2, 0.2), (0.06, 0.28)
"""Standard deviation of the tightest and of the widest digit, where neighbouring centres lie 1 apart."""


@dataclass(frozen=True, eq=False)
class DigitPlane:
    """Points of ten digits in a plane, and what is measured of them."""

    name: str
    points: NDArray[np.float64]
    labels: NDArray[np.int64]
    recall: float
    opis: float


def digit_planes(seed: int = 0) -> tuple[DigitPlane, DigitPlane]:
    """Ten digits around the same centres, once equally wide, once from narrow to wide.

    In both, the nearest neighbour of nearly every point is of its own digit. But where digits differ in width, the
    threshold that a wide one needs is far too generous for a narrow one: OPIS tells.
    """
    draw = np.random.default_rng(derive_seed(seed, "digits in a plane"))
    # Two rows of five centres.
    centres = np.array([(column, row) for row in range(2) for column in range(DIGITS // 2)], np.float64)
    labels = np.repeat(np.arange(DIGITS), IMAGES)
    noise = np.clip(draw.normal(size=(len(labels), 2)), -2, 2)
    order = draw.permutation(DIGITS)
    planes = []
    for name, ends in (("equally wide", EVEN), ("unequally wide", UNEVEN)):
        width = np.geomspace(*ends, DIGITS)[order]
        points = centres[labels] + noise * width[labels][:, None]
        evaluation = evaluate(points, labels, metrics=["recall@1", "opis"], geometry="euclidean")
        planes.append(DigitPlane(name, points, labels, evaluation["recall@1"], evaluation["opis"]))
    return planes[0], planes[1]
