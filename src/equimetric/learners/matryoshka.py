"""Matryoshka: an embedding whose first dimensions are an embedding, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.errors import EquimetricError
from equimetric.geometry import unit
from equimetric.learners.batch import Batch
from equimetric.learners.epoch_view import EpochView
from equimetric.learners.learner import LearnerFactory, Outputs, learner
from equimetric.learners.modules.networks import merge_parameter_groups, objective_terms
from equimetric.learners.modules.slices import require_sizes
from equimetric.learners.single import SingleObjectiveLearner, run_epoch_hooks
from equimetric.objectives import Objective, ObjectiveSum

__all__ = ["Matryoshka", "halved_sizes"]

MIN_PREFIX_DIM = 8
"""Dimensions of the smallest prefix, unless sizes are given."""


def halved_sizes(dim: int) -> list[int]:
    """dim, dim/2, dim/4, …, as long as they are 8 or more."""
    sizes = [dim]
    while sizes[-1] // 2 >= MIN_PREFIX_DIM:
        sizes.append(sizes[-1] // 2)
    return sizes


@learner(
    "matryoshka",
    paper="Kusupati, Bhatt, Rege, Wallingford, Sinha, Ramanujan, Howard-Snyder, Chen, Kakade, Jain, Farhadi: "
    "Matryoshka representation learning (2022)",
)
class Matryoshka(SingleObjectiveLearner):
    """One network whose embedding is trained at several lengths: L = Σ_s w_s L_s(f(x)[:s]), each L_s an own objective.

    The whole embedding is evaluated; the prefixes are its members, so the table of members shows accuracy and
    threshold consistency by dimension.
    """

    def __init__(
        self,
        network: EmbeddingNetwork,
        objective: Objective | ObjectiveSum,
        prefixes: Mapping[int, Objective | ObjectiveSum],
        weights: Mapping[int, float],
    ) -> None:
        super().__init__(network, objective)
        self.sizes = list(prefixes)
        self.prefixes = nn.ModuleList(prefixes.values())
        self.weights = dict(weights)

    @classmethod
    def build(
        cls, factory: LearnerFactory, *, sizes: Sequence[int] | None = None, weights: Sequence[float] | None = None
    ) -> Matryoshka:
        """Prefixes of these sizes, the largest the configured dimension, with a weight for each; all 1 by default."""
        chosen = halved_sizes(factory.dim) if sizes is None else list(sizes)
        require_sizes("learner 'matryoshka': sizes", chosen)
        if max(chosen) != factory.dim or len(set(chosen)) < len(chosen):
            raise EquimetricError(
                f"learner 'matryoshka': sizes must be different, the largest model.dim = {factory.dim}, got {chosen}"
            )
        weight_list = [1.0] * len(chosen) if weights is None else list(weights)
        if len(weight_list) != len(chosen) or not all(
            isinstance(weight, int | float) and weight > 0 for weight in weight_list
        ):
            raise EquimetricError(
                f"learner 'matryoshka': weights must be {len(chosen)} numbers above 0, one for each size, got {weights}"
            )
        network, objective = factory.network(), factory.objective()
        smaller = sorted((size for size in chosen if size < factory.dim), reverse=True)
        return cls(
            network,
            objective,
            {size: factory.objective(size) for size in smaller},
            dict(zip(chosen, weight_list, strict=True)),
        )

    @property
    def prefix_objectives(self) -> Mapping[int, Objective | ObjectiveSum]:
        """The objectives of the prefixes by size, without that of the whole."""
        return dict(zip(self.sizes, self.prefixes, strict=True))  # type: ignore[arg-type]

    def members(self, outputs: Outputs) -> dict[str, Tensor]:
        """The prefixes that are shorter than the whole, longest first."""
        return {f"first{size}": unit(outputs["embedding"][:, :size]) for size in self.sizes}

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The terms of the whole embedding and of every prefix, each times its weight."""
        embedding = outputs["embedding"]
        dim = embedding.shape[1]
        terms = {
            name: self.weights[dim] * value for name, value in objective_terms(self.objective, embedding, batch).items()
        }
        for size, objective in self.prefix_objectives.items():
            for name, value in objective_terms(objective, embedding[:, :size], batch).items():
                terms[f"first{size} {name}"] = self.weights[size] * value
        return terms

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk and head of the network, and the parameters of all objectives."""
        return merge_parameter_groups([super().parameter_groups(), {"objective": list(self.prefixes.parameters())}])

    def on_epoch(self, view: EpochView) -> None:
        """Call every part of the objectives that has an `on_epoch` of its own, with the prefix that it sees."""
        super().on_epoch(view)
        for size, objective in self.prefix_objectives.items():
            run_epoch_hooks(objective, partial(prefix_of, view, size), view.labels)


def prefix_of(view: EpochView, size: int) -> Tensor:
    """(N, size) the first dimensions of the training set's embeddings, at unit length."""
    return unit(view.embeddings()[:, :size])
