"""Several notions of similarity in one model: a head for the classes and one for every attribute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.data.attributes import find_attribute
from equimetric.errors import EquimetricError, did_you_mean
from equimetric.learners.batch import Batch, Task
from equimetric.learners.epoch_view import EpochView
from equimetric.learners.learner import LearnerFactory, Outputs, learner
from equimetric.learners.modules.multi_head import CLASS, MultiHeadLearner
from equimetric.learners.modules.networks import objective_terms
from equimetric.learners.single import refuse_epoch_hooks
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.option_values import PositiveFloat, PositiveInt

__all__ = ["AttributeHeads"]


@learner("attributes")
class AttributeHeads(MultiHeadLearner):
    """One head for the classes and one for each attribute of the data, every one with an objective of its own.

    Each step trains one head, on a batch that is balanced by its own labels; the features are common to all. The
    embedding is that of the classes. The other heads are members, which are evaluated by their attribute.
    """

    ids: Tensor

    def __init__(
        self,
        network: EmbeddingNetwork,
        heads: Mapping[str, nn.Module],
        objectives: Mapping[str, Objective | ObjectiveSum],
        *,
        images: int,
        share: float,
    ) -> None:
        super().__init__(network, heads)
        self.objectives = nn.ModuleDict(objectives)
        refuse_epoch_hooks(objectives[CLASS], "attributes")
        self.share = share
        self.member_labels = {name: name for name in heads}
        self.register_buffer("ids", torch.full((len(heads), images), -1))

    @classmethod
    def build(
        cls,
        factory: LearnerFactory,
        *,
        names: Sequence[str] = (),
        dim: PositiveInt | None = None,
        share: PositiveFloat = 1.0,
    ) -> AttributeHeads:
        """A head of `dim` dimensions for each of the attributes `names`, by default as many as for the classes.

        `share` is the number of steps for each attribute, relative to those for the classes.
        """
        names = [names] if isinstance(names, str) else list(names)
        require_attributes(names, factory.attributes)
        network, size = factory.network(), dim or factory.dim
        return cls(
            network,
            {name: factory.head(network, size) for name in names},
            {CLASS: factory.objective()} | {name: factory.objective(size, factory.attributes[name]) for name in names},
            images=factory.images,
            share=share,
        )

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The terms of the head that the batch is drawn for."""
        objective: Objective | ObjectiveSum = self.objectives[batch.task]  # type: ignore[assignment]
        terms = objective_terms(objective, outputs[batch.task], batch)
        return {f"{batch.task} {name}": value for name, value in terms.items()}

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk, heads, and the parameters of the objectives."""
        return {**super().parameter_groups(), "objective": self.objectives.parameters()}

    def tasks(self) -> Sequence[Task]:
        """One task for the classes and one for each attribute."""
        attributes = zip(self.heads, self.ids, strict=True)
        return (Task(CLASS), *(Task(name, labels=ids, probability=self.share) for name, ids in attributes))

    def on_epoch(self, view: EpochView) -> None:
        """Read the labels of the attributes."""
        for name, ids in zip(self.heads, self.ids, strict=True):
            ids.copy_(find_attribute(view.attributes, name, "learner.options.names"))


def require_attributes(names: Sequence[str], attributes: Mapping[str, int]) -> None:
    """Raise an error for names that are no attributes of the data, or have one value only."""
    if not names:
        names_text = ", ".join(map(repr, attributes)) or "none"
        raise EquimetricError(
            f"learner 'attributes' needs the option names; the attributes of these data: {names_text}"
        )
    for name in names:
        if name not in attributes:
            raise EquimetricError(
                f"learner.options.names has {name!r}, which is no attribute of the data; "
                f"{did_you_mean(name, attributes)}"
            )
        if attributes[name] < 2:
            raise EquimetricError(f"all training images have the same {name!r}, so there is nothing to tell apart")
    if len(set(names)) < len(names) or CLASS in names:
        raise EquimetricError(f"learner.options.names must be different from each other and from {CLASS!r}: {names}")
