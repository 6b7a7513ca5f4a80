"""What the tests of runs share."""

import numpy as np


def draw_image(label, number):
    """A (30, 24, 3) image whose middle tells the class and whose border does not."""
    generator = np.random.default_rng(1000 * label + number)
    pixels = generator.integers(0, 256, (30, 24, 3), dtype=np.uint8)
    colour = np.random.default_rng(label).integers(0, 256, 3)
    pixels[8:22, 6:18] = colour
    return pixels


def configuration(data, **tables):
    base = {
        "method": "contrastive",
        "data": data,
        "model": {"dim": 4},
        "batch": {"classes": 2, "samples": 2},
        "training": {"steps": 4, "validate_every": 2, "log_every": 2},
    }
    return {**base, **{name: {**base.get(name, {}), **values} for name, values in tables.items()}}
