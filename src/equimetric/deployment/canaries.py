"""Canaries: a few images made by a formula, with the outputs that a model gave for them when it was exported.

They show whether another machine or runtime computes the same. Nothing of the training data is in them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from equimetric.deployment.preprocessing import Preprocessing
from equimetric.deployment.runtimes import Arithmetic, Arrays, Runtime
from equimetric.seeding import derive_seed

__all__ = ["TOLERANCE", "compute_canaries", "largest_difference", "make_canaries", "split_canaries"]

NUM_CANARIES = 8
NUM_WAVES = 6
TOLERANCE: dict[Arithmetic, float] = {"float32": 1e-5, "int8": 5e-3}
"""Largest difference between outputs, relative to the largest of them; a rounding step of int8 is far larger."""
IMAGE, PIXELS = "image", "pixels"


def make_canaries(preprocessing: Preprocessing) -> dict[str, NDArray[np.uint8]]:
    """`image0` …: (H, W, C) smooth coloured patterns of several sizes; `pixels`: (N, C, S, S) after preprocessing."""
    random = np.random.default_rng(derive_seed(0, "canaries"))
    side = preprocessing.size
    images = []
    for i in range(NUM_CANARIES):
        # Portrait, landscape and square, larger and smaller than the network's input.
        height = max(8, side * (6 + i % 4) // 6)
        width = max(8, side * (6 + i * 3 % 5) // 7)
        images.append(draw_waves(random, height, width, preprocessing.channels))
    pixels = np.stack([preprocessing.pixels(image) for image in images])
    return {PIXELS: pixels, **{f"{IMAGE}{i}": image for i, image in enumerate(images)}}


def draw_waves(random: np.random.Generator, height: int, width: int, channels: int) -> NDArray[np.uint8]:
    """A sum of a few random waves and a little noise, from black to white."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j][..., None]
    shape = (NUM_WAVES, 1, 1, channels)
    frequency_y, frequency_x, phase = (random.uniform(-4, 4, shape) for _ in range(3))
    waves = np.sin(2 * np.pi * (frequency_y * y + frequency_x * x + phase)).sum(axis=0)
    waves += random.normal(0, 0.2, waves.shape)
    scaled = (waves - waves.min()) / (waves.max() - waves.min())
    pixels: NDArray[np.uint8] = np.rint(scaled * 255).astype(np.uint8)
    return pixels


def compute_canaries(runtime: Runtime, pixels: NDArray[np.uint8]) -> Arrays:
    """The outputs of a runtime for the canaries."""
    return {name: np.ascontiguousarray(rows, dtype=np.float32) for name, rows in runtime.run(pixels).items()}


def split_canaries(stored: Arrays) -> tuple[list[NDArray[np.uint8]], NDArray[np.uint8], Arrays]:
    """Images, pixels and outputs from the stored arrays."""
    images = [stored[f"{IMAGE}{i}"] for i in range(len(stored[PIXELS]))]
    outputs = {name: rows for name, rows in stored.items() if name != PIXELS and not name.startswith(IMAGE)}
    return images, stored[PIXELS], outputs


def largest_difference(expected: Arrays, actual: Arrays) -> float:
    """The largest difference between outputs, relative to the largest value of each where that is above 1."""
    if expected.keys() != actual.keys() or any(rows.shape != actual[name].shape for name, rows in expected.items()):
        return float("inf")
    return max(
        float(np.abs(rows - actual[name]).max() / max(1.0, float(np.abs(rows).max())))
        for name, rows in expected.items()
    )
