"""Changes of viewpoint: images cropped, rotated, seen at an angle.

All are plane projective maps of the image, sampled bilinearly; outside the image its border is repeated, so that a
plain background stays plain and nothing is seen twice.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from equimetric.data.image_conditions import Pixels, image_condition

__all__ = ["crop_closer", "rotate", "tilt"]

CAMERA_DISTANCE = 3.0
"""Distance from the centre of the tilted image, in halves of its shorter side."""

Matrix = NDArray[np.float64]


@image_condition("crop", kind="viewpoint", strengths=(0.85, 0.7, 0.55))
def crop_closer(pixels: Pixels, fraction: float, random: np.random.Generator) -> Pixels:
    """A part of 85, 70 and 55 % of each side, somewhere in the image, enlarged to its size."""
    right, down = (2 * random.random(2) - 1) * (1 - fraction)
    height, width = pixels.shape[:2]
    shorter = min(height, width)
    return _sample(pixels, _matrix([fraction, 0, right * width / shorter], [0, fraction, down * height / shorter]))


@image_condition("rotation", kind="viewpoint", strengths=(15, 30, 60))
def rotate(pixels: Pixels, degrees: float, random: np.random.Generator) -> Pixels:
    """Rotated by 15, 30 and 60 degrees to the left or right."""
    angle = math.radians(degrees) * random.choice([-1, 1])
    return _sample(pixels, _matrix([math.cos(angle), math.sin(angle), 0], [-math.sin(angle), math.cos(angle), 0]))


@image_condition("tilt", kind="viewpoint", strengths=(20, 35, 50))
def tilt(pixels: Pixels, degrees: float, random: np.random.Generator) -> Pixels:
    """Seen from 20, 35 and 50 degrees beside its normal, in a random direction.

    A point p of the image, turned by the angle θ about an axis in its plane, is seen at D·p′ / (D + p′_z), with p′ the
    turned point and D the distance of the camera.
    """
    direction, angle = 2 * math.pi * random.random(), math.radians(degrees)
    away = np.array([math.cos(direction), math.sin(direction)])
    # The part of p along `away` shortens by cos θ and moves away by sin θ.
    turned = np.eye(2) + (math.cos(angle) - 1) * np.outer(away, away)
    projection = np.zeros((3, 3))
    projection[:2, :2] = CAMERA_DISTANCE * turned
    projection[2] = [*(math.sin(angle) * away), CAMERA_DISTANCE]
    return _sample(pixels, np.asarray(np.linalg.inv(projection), np.float64))


def _matrix(*rows: list[float]) -> Matrix:
    return np.array([*rows, [0, 0, 1]], np.float64)


def _sample(pixels: Pixels, source: Matrix) -> Pixels:
    """The image whose point p is the given image's point source · p; coordinates in halves of the shorter side."""
    height, width = pixels.shape[:2]
    scale = np.array([width, height]) / min(height, width)
    across, down = (2 * (np.arange(n) + 0.5) / n - 1 for n in (width, height))
    x, y = np.meshgrid(across * scale[0], down * scale[1])
    position = np.stack([x, y, np.ones_like(x)], axis=-1) @ source.T
    grid = torch.from_numpy(position[..., :2] / position[..., 2:] / scale)
    image = torch.from_numpy(pixels.astype(np.float64)).permute(2, 0, 1)[None]
    sampled = F.grid_sample(image, grid[None], mode="bilinear", padding_mode="border", align_corners=False)
    return np.ascontiguousarray(sampled[0].permute(1, 2, 0).round().clamp(0, 255).to(torch.uint8).numpy())
