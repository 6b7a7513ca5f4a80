"""Embeddings of many images, a block at a time."""

from collections.abc import Callable

import torch
from torch import Tensor

from equimetric.data import Images
from equimetric.learners import Learner
from equimetric.training.processes import Processes

__all__ = ["embed_images", "in_blocks"]

ALONE = Processes()


LARGEST_BLOCK, SMALLEST_BLOCK, PIXELS = 512, 16, 2**20
"""Images in the network at a time: as many as have a million pixels together, but neither too few nor too many."""


def embed_images(learner: Learner, images: Images, *, block: int | None = None, processes: Processes = ALONE) -> Tensor:
    """(N, C, H, W) uint8 → (N, D) embeddings, in evaluation mode, without gradient and without augmentation.

    `block` images at a time, by default as many as the network computes with quickly.
    Of several processes each embeds its part of the blocks, and all have the whole result, the same as of one.
    """
    if block is None:
        pixels = images.shape[2] * images.shape[3] if len(images.shape) == 4 else 1
        block = max(SMALLEST_BLOCK, min(LARGEST_BLOCK, PIXELS // pixels))
    was_training = learner.training
    parameter = next(learner.parameters(), None)

    def embed(part: Tensor) -> Tensor:
        if parameter is None:
            return learner.embed(learner.prepare(part))
        return learner.embed(learner.prepare(part.to(parameter.device)).to(parameter.dtype))

    learner.eval()
    try:
        return in_blocks(embed, images, block, processes)
    finally:
        learner.train(was_training)


def in_blocks(function: Callable[[Tensor], Tensor], images: Images, block: int, processes: Processes) -> Tensor:
    """What a function gives for (N, …) images, computed without gradient so many at a time; on the processor."""
    starts = range(0, len(images), block)
    own = processes.part(len(starts))
    with torch.inference_mode():
        # Where there are more processes than blocks, some embed one image for its shape and give none of it.
        blocks = [function(images[start : start + block]) for start in starts[own.start : own.stop]]
        rows = torch.cat(blocks) if blocks else function(images[:1])[:0]
        return processes.gathered(rows).cpu().clone()
