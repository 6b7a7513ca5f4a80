"""The weights that an objective gives to the pairs of one real batch, again and again during training."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.data import take_images
from equimetric.errors import EquimetricError
from equimetric.explain import pair_weights
from equimetric.geometry import unit
from equimetric.runs.embedding import embed_images
from equimetric.seeding import derive_seed
from equimetric.training.session import Session

__all__ = ["WEIGHT_EDGES", "log_batch_weights", "summarize_weights"]

CLASSES, IMAGES = 16, 4
WEIGHT_EDGES = np.linspace(-1, 1, 21)
"""Cosines between which the weights of pairs are averaged."""


def log_batch_weights(session: Session) -> None:
    """Write one line to the run's own log: the mean weight of positives and negatives at every cosine.

    The batch is the same throughout a run. Nothing is logged where pairs of a batch have no weights: objectives with
    proxies or of the embeddings themselves, and learners with several objectives. Called by every process, because
    embedding is the work of all; the main one writes.
    """
    objective = session.learner.pair_objective()
    if objective is None:
        return
    rows = draw_batch(session.train_data.labels, session.config.seed)
    images = take_images(session.data.images("train"), rows)
    embeddings = embed_images(session.learner, images).double()
    labels = session.train_data.labels[rows]
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            torch.manual_seed(derive_seed(session.config.seed, "weights of a batch"))
            weights = pair_weights(objective, embeddings, labels, index=rows).detach()
    except (EquimetricError, RuntimeError, TypeError):
        return
    if weights.shape == (len(rows), len(rows)) and weights.isfinite().all():
        summary = summarize_weights(weights, unit(embeddings), labels)
        session.run.log({"kind": "pair_weights", "step": session.state.step, **summary})


def draw_batch(labels: Tensor, seed: int) -> Tensor:
    """Rows of a batch: up to 16 classes with up to 4 images each, drawn by the seed."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "batch of pair weights"))
    order = torch.randperm(len(labels), generator=generator)
    classes = list(dict.fromkeys(labels[order].tolist()))[:CLASSES]
    return torch.cat([order[labels[order] == label][:IMAGES] for label in classes])


def summarize_weights(weights: Tensor, vectors: Tensor, labels: Tensor) -> dict[str, Any]:
    """For positives and negatives: the number of pairs in every bin of cosines, and their mean weight."""
    cosine = (vectors @ vectors.T).clamp(-1, 1)
    same, not_self = labels[:, None] == labels, ~torch.eye(len(labels), dtype=torch.bool)
    summary: dict[str, Any] = {}
    for kind, mask in (("positive", same & not_self), ("negative", ~same)):
        bin_index = np.clip(np.digitize(cosine[mask].numpy(), WEIGHT_EDGES) - 1, 0, len(WEIGHT_EDGES) - 2)
        pairs: NDArray[np.int64] = np.bincount(bin_index, minlength=len(WEIGHT_EDGES) - 1)
        sums = np.bincount(bin_index, weights[mask].numpy(), len(WEIGHT_EDGES) - 1)
        means = np.divide(sums, pairs, out=np.zeros_like(sums), where=pairs > 0)
        summary[kind] = {"pairs": pairs.tolist(), "weight": [float(f"{mean:.6g}") for mean in means]}
    return summary
