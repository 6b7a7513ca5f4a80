"""DREML: networks that classify by random groups of classes, each by groups of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from equimetric.learners.batch import Batch
from equimetric.learners.epoch_view import EpochView
from equimetric.learners.learner import LearnerFactory, Outputs, learner
from equimetric.learners.modules.networks import objective_terms, require_loss
from equimetric.learners.modules.slices import Slices
from equimetric.learners.naive_ensemble import NaiveEnsemble
from equimetric.losses.dreml import RandomizedMembers, balanced_maps
from equimetric.seeding import derive_seed

__all__ = ["Dreml"]


@learner("dreml", paper="Xuan, Souvenir, Pless: Deep randomized ensembles for metric learning (2018)")
class Dreml(NaiveEnsemble):
    """L networks with D outputs each, whose cross-entropy is that of D meta-classes, the classes grouped at random.

    The loss is `dreml`, its options those of the method: `members` is L, the D are equal shares of the configured
    dimension, and `proxies = "learned"` compares with learned proxies in place of the coordinate axes. Maps of classes
    to meta-classes are balanced, drawn by the seed of the run, and a part of the state. Members at unit length are
    concatenated. On a frozen backbone, or on given features, they are slices of one linear head.
    """

    @classmethod
    def build(cls, factory: LearnerFactory) -> Dreml:  # type: ignore[override]  # the loss says how many members
        """The members that the loss `dreml` names."""
        objective = factory.objective()
        loss = require_loss(objective, RandomizedMembers, "dreml")
        loss.meta_classes.copy_(
            balanced_maps(factory.classes, loss.sizes, derive_seed(factory.seed, "dreml", loss.seed))
        )
        sizes = loss.sizes if factory.trains_trunk else [factory.dim]
        return cls(map(factory.network, sizes), [objective], Slices.from_sizes(loss.sizes))

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The cross-entropies of all members, by their meta-classes."""
        return objective_terms(
            self.objective_list[0], torch.cat([outputs[name] for name in self.slices.sizes], dim=1), batch
        )

    def on_epoch(self, view: EpochView) -> None:
        """Nothing: one loss serves all members, and inspects batches alone."""
