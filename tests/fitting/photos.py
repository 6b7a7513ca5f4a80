"""A small folder of pictures: every class has a pattern of its own, every picture noise of its own."""

import numpy as np
from PIL import Image


def write_photos(root, classes=12, images=6, size=20, seed=0):
    """root/class-00/0.png …; returns root."""
    draw = np.random.default_rng(seed)
    for number in range(classes):
        pattern = draw.uniform(40, 215, (size // 4, size // 4, 3)).repeat(4, 0).repeat(4, 1)
        folder = root / f"class-{number:02d}"
        folder.mkdir(parents=True)
        for image in range(images):
            noise = draw.normal(0, 30, pattern.shape)
            Image.fromarray(np.clip(pattern + noise, 0, 255).astype(np.uint8)).save(folder / f"{image}.png")
    return root
