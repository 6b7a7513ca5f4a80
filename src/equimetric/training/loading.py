"""Batches on their way to the network: drawn ahead, decoded, prepared, augmented."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from equimetric.data import Loader
from equimetric.learners import Batch
from equimetric.seeding import derive_seed
from equimetric.training.session import Session

__all__ = ["load_batches"]


def load_batches(session: Session, *, first: int, n: int) -> Iterator[Batch]:
    """N training batches of this rank, from batch number `first` on.

    They are drawn ahead of their use, but never beyond n, where a checkpoint may be saved; adaptive samplers draw them
    one by one.
    """
    config, learner, batches = session.config, session.learner, session.batches
    transform, placement, processes = session.data.transform, session.placement, session.processes
    loader = Loader(
        session.train_data.images,
        batches.draw(first, n, processes),
        view=transform.train,
        seed=derive_seed(config.seed, "view", processes.rank),
        first=first,
        workers=config.data.workers,
        prefetch=0 if batches.adapts else 2,
    )
    groups, weights = learner.groups(), session.weights
    for number, (chosen, pixels) in enumerate(loader, start=first):
        task = batches.unused.popleft()
        with processes.per_rank_rng("augment", number):
            prepared = learner.prepare(pixels.to(placement.device))
            views = [
                placement.to_device(transform.augment(prepared, torch.default_generator)) for _ in range(learner.views)
            ]
        index = chosen.to(placement.device)
        group = None if groups is None else groups.cluster.to(placement.device)[index]
        labels = batches.labels_of(task, chosen).to(placement.device)
        weight = None if weights is None else weights[chosen].to(placement.device)
        yield Batch(views[0], labels, index, group, (*views[1:],), task, number, weight)
