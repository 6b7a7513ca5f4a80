"""Embeddings of many images, a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from equimetric.data import Images
from equimetric.learners import Batch, Learner
from equimetric.processes import SINGLE, Processes

__all__ = ["apply_in_blocks", "embed_images", "embed_members", "images_per_block"]

MAX_BLOCK, MIN_BLOCK, PIXELS = 512, 16, 2**20
"""Images in the network at a time: about a million pixels together."""

ImageFunction = Callable[[Tensor], Mapping[str, Tensor]]


def images_per_block(pixels: int) -> int:
    """Number of images of `pixels` pixels each in the network at a time."""
    return max(MIN_BLOCK, min(MAX_BLOCK, PIXELS // pixels))


def embed_images(
    learner: Learner,
    images: Images,
    *,
    modality: str | None = None,
    block: int | None = None,
    processes: Processes = SINGLE,
) -> Tensor:
    """(N, C, H, W) uint8 or (N, F) features → (N, D) embeddings on the CPU, in evaluation mode.

    With a modality the images, or features, are of that one alone.
    """
    embed = learner.embed if modality is None else partial(learner.encode, modality)
    function: ImageFunction = lambda part: {"embedding": embed(part)}  # noqa: E731
    return apply_in_blocks(learner, function, images, block=block, processes=processes)["embedding"]


def embed_members(learner: Learner, images: Images, *, processes: Processes = SINGLE) -> dict[str, Tensor]:
    """(N, d) embeddings of every member of a learner."""
    function: ImageFunction = lambda part: learner.members(learner.outputs(Batch.unlabelled(part)))  # noqa: E731
    return apply_in_blocks(learner, function, images, processes=processes)


def apply_in_blocks(
    learner: Learner,
    function: ImageFunction,
    images: Images,
    *,
    block: int | None = None,
    processes: Processes = SINGLE,
) -> dict[str, Tensor]:
    """`function(prepared images)` for all images, without gradient or augmentation, its rows joined on the CPU.

    Each of several processes computes its blocks, and all get the whole result, the same as a single one.
    """
    if block is None:
        block = images_per_block(images.shape[2] * images.shape[3] if len(images.shape) == 4 else 1)
    parameter = next(learner.parameters(), None)

    def compute(part: Tensor) -> Mapping[str, Tensor]:
        if parameter is None:
            return function(learner.prepare(part))
        return function(learner.prepare(part.to(parameter.device)).to(parameter.dtype))

    starts = range(0, len(images), block)
    shard = processes.shard(len(starts))
    was_training = learner.training
    learner.eval()
    try:
        with torch.inference_mode():
            blocks = [compute(images[start : start + block]) for start in starts[shard.start : shard.stop]]
            # With more processes than blocks, some embed one image for its shape and contribute no row.
            blocks = blocks or [{name: rows[:0] for name, rows in compute(images[:1]).items()}]
            outputs = {name: torch.cat([block_output[name] for block_output in blocks]) for name in blocks[0]}
            return {name: processes.gather(rows).cpu().clone() for name, rows in outputs.items()}
    finally:
        learner.train(was_training)
