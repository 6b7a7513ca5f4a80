"""Structured clustering: the true clustering must beat every other one by a margin that grows with 1 − NMI."""

from typing import Annotated

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import Scheduled, loss
from equimetric.option_values import NonNegativeFloat, NonNegativeInt, PositiveInt, Range
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform


@loss(
    "structured_clustering",
    title="Structured clustering",
    family="clustering",
    paper="Oh Song, Jegelka, Rathod, Murphy: Deep metric learning via facility location (2017)",
    geometry=("euclidean", "cosine"),
    references="batch",
    takes="batch",
    search={"gamma": LogUniform(1.0, 1e4), "decay": Uniform(0.7, 1.0)},
    exempt={
        "repetition": "a copy of a sample would be a further candidate for a medoid",
        "monotone": "samples are pushed from the medoids of a wrong clustering, also from those of their own class",
        "multiplicity": "rows and columns are the same samples: columns cannot be repeated alone",
        "static shapes": "medoids are searched one by one",
    },
    known_as=("FacilityLocation", "ClusteringLoss"),
)
class StructuredClustering(Scheduled):
    """Penalize a wrong clustering around K medoids that scores above the true one, K the number of classes.

    L = [max_{|S|=K} {F(S) + γ Δ(S)} − F̃]₊, F(S) = −Σ_i min_{c∈S} d_ic, Δ = 1 − NMI(y, ŷ) with ŷ the nearest
    medoids and the geometric mean of the entropies, F̃ = Σ_classes max_{c in class} −Σ_{i in class} d_ic. The maximum
    is sought greedily and then by `pam_iters` sweeps of swaps. Medoids and Δ are constants to the gradient. Sums over i
    and the counts in Δ are by the weights of samples; one of weight 0 is no medoid. After t training steps γ is
    gamma · decay^⌊t / decay_steps⌋.
    """

    def __init__(
        self,
        *,
        gamma: NonNegativeFloat = 1.0,
        pam_iters: NonNegativeInt = 5,
        decay: Annotated[float, Range(0.0, 1.0, without_low=True)] = 1.0,
        decay_steps: PositiveInt = 100,
    ) -> None:
        super().__init__(persistent=decay < 1)
        self.start, self.pam_iters = gamma, pam_iters
        self.decay, self.decay_steps = decay, decay_steps

    @property
    def gamma(self) -> float:
        """γ at this step."""
        return self.start * self.decay ** (int(self.step) // self.decay_steps) if self.decay < 1 else self.start

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of a batch."""
        _, labels = ops.require.whole_batch(pairs, "structured_clustering")
        ops.require.finite(pairs.similarity, "structured_clustering")
        rows = torch.arange(len(labels), device=labels.device)
        distance = pairs.distance().masked_fill(rows[:, None] == rows, 0)
        weight = pairs.query_weight
        if weight is not None:
            present = weight.nonzero()[:, 0]
            labels, weight, distance = labels[present], weight[present], distance[present][:, present]
            rows = rows[: len(present)]
        classes, member = torch.unique(labels, return_inverse=True)
        if len(classes) in (0, 1, len(labels)):
            return distance.sum() * 0
        gamma = self.gamma
        with torch.no_grad():
            # A sequence of small steps, so not for an accelerator; in float64, which separates ties.
            counts = None if weight is None else weight.double().cpu()
            search = ops.special.MedoidSearch(distance.double().cpu(), member.cpu(), gamma, counts)
            nearest, delta = search.solve(self.pam_iters)
            true_medoid = search.class_medoids()
        true, best = (distance[rows, medoid.to(labels.device)] for medoid in (true_medoid, nearest))
        score_gap = true.sum() - best.sum() if weight is None else torch.dot(weight.to(distance), true - best)
        return (score_gap + gamma * delta).relu()
