"""Embeddings of many images, a block at a time."""

import torch
from torch import Tensor

from equimetric.data.transforms import prepare
from equimetric.learners import Learner

__all__ = ["embed_images"]


def embed_images(learner: Learner, images: Tensor, *, block: int = 512) -> Tensor:
    """(N, C, H, W) uint8 → (N, D) embeddings, in evaluation mode, without gradient and without augmentation."""
    was_training = learner.training
    device = next((parameter.device for parameter in learner.parameters()), images.device)
    learner.eval()
    try:
        with torch.inference_mode():
            blocks = [learner.embed(prepare(part.to(device))).cpu() for part in torch.split(images, block)]
    finally:
        learner.train(was_training)
    return torch.cat(blocks).clone()
