"""The protocol between a learner and the training loop: the loop knows this and nothing else of a learner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from equimetric.backbones import Backbone, EmbeddingNetwork
from equimetric.batches import Groups
from equimetric.data.transforms import prepare
from equimetric.errors import EquimetricError
from equimetric.geometry import unit
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.registry import Registry

__all__ = ["LEARNERS", "Batch", "EpochView", "LatePart", "LateStart", "Learner", "LearnerParts", "Task", "learner"]

Outputs = Mapping[str, Tensor]
"""Tensors by name, row i of each computed from image i alone."""

Definition = TypeVar("Definition", bound="type[Learner]")


@dataclass(frozen=True, eq=False)
class Batch:
    """A training batch, or a part of its rows.

    Attributes:
        images: (B, C, H, W) prepared and augmented, or (B, D) features. In `losses` those of this process alone.
        labels: (B,) class ids 0 … C − 1, or the labels of the batch's task.
        index: (B,) rows of the training set.
        group: (B,) clusters, where the learner has `groups`.
        weight: (B,) how often each sample counts, where the data have weights.
        views: further augmentations of the same images, where the learner asks for them.
        task: name of the task the batch was drawn for.
        number: how many batches the run drew before it.
    """

    images: Tensor
    labels: Tensor
    index: Tensor
    group: Tensor | None = None
    views: tuple[Tensor, ...] = ()
    task: str = "main"
    number: int = 0
    weight: Tensor | None = None

    @classmethod
    def unlabelled(cls, images: Tensor) -> Batch:
        """Images without labels, to be embedded."""
        unknown = torch.full((len(images),), -1, device=images.device)
        return cls(images, unknown, unknown)

    def __len__(self) -> int:
        return len(self.images)

    def rows(self, rows: slice) -> Batch:
        """Some rows of the batch."""
        return replace(
            self,
            images=self.images[rows],
            labels=self.labels[rows],
            index=self.index[rows],
            group=None if self.group is None else self.group[rows],
            weight=None if self.weight is None else self.weight[rows],
            views=tuple(view[rows] for view in self.views),
        )


class LatePart(NamedTuple):
    """A part that takes no part in the first batches or steps of a run.

    Attributes:
        what: the part, as a sentence begins.
        first: how many batches, or optimiser steps, pass before it takes part.
        unit: which of the two.
        option: what sets it.
    """

    what: str
    first: float
    unit: Literal["batches", "steps"]
    option: str


@runtime_checkable
class LateStart(Protocol):
    """A loss, selection or kind of references that takes part only after a number of batches, as a memory does."""

    def starts_after(self) -> tuple[str, int, str]:
        """What it is called, the number of batches, and the option that sets it."""


@dataclass(frozen=True, eq=False)
class Task:
    """Batches drawn for one purpose; every optimiser step serves one task.

    Attributes:
        name: what `Batch.task` says.
        labels: (N,) label of every training row, −1 for rows that are never drawn; None for the class ids.
        batches: batch sampler by name; None for the configured one.
        probability: share of the steps, relative to the other tasks.
    """

    name: str = "main"
    labels: Tensor | None = None
    batches: str | None = None
    probability: float = 1.0


class EpochView:
    """The training set as `on_epoch` sees it: everything is computed when first asked for, in evaluation mode.

    Attributes:
        labels: (N,) class ids of the training rows.
        history: the records of all validations so far.
    """

    def __init__(
        self,
        learner: Learner,
        labels: Tensor,
        attributes: Callable[[], Mapping[str, Tensor]],
        history: Sequence[Mapping[str, Any]],
        apply: Callable[[Callable[[Tensor], Outputs]], dict[str, Tensor]],
        evaluate: Callable[[Tensor, Tensor, Sequence[str]], dict[str, float]],
    ) -> None:
        self.labels = labels
        self._attributes = attributes
        self.history = history
        self._learner = learner
        self._apply = apply
        self._evaluate = evaluate

    @cached_property
    def _outputs(self) -> dict[str, Tensor]:
        return self._apply(lambda images: self._learner.outputs(Batch.unlabelled(images)))

    @cached_property
    def _embeddings(self) -> Tensor:
        return self._apply(lambda images: {"embedding": self._learner.embed(images)})["embedding"]

    @cached_property
    def attributes(self) -> Mapping[str, Tensor]:
        """Further labels of the training rows: (N,) ids by attribute of the data set, such as "script"."""
        return self._attributes()

    def embeddings(self) -> Tensor:
        """(N, D) aggregated embeddings."""
        return self._embeddings

    def outputs(self, *names: str) -> dict[str, Tensor]:
        """Outputs by name, (N, …) each; all of them where no name is given."""
        return {name: self._outputs[name] for name in names} if names else dict(self._outputs)

    def features(self, stage: str | None = None) -> Tensor:
        """(N, F) pooled features of the learner's backbone, at its end or after a named stage."""
        return self._apply(lambda images: {"features": self._learner.features(images, stage)})["features"]

    def evaluate(self, rows: Tensor, metrics: Sequence[str]) -> dict[str, float]:
        """Metrics of the embeddings of some training rows, which are each other's gallery."""
        return self._evaluate(self._embeddings[rows], self.labels[rows], metrics)


class LearnerParts(Protocol):
    """What a run offers a learner to build itself from; each call builds a new part, seeded by the run.

    Attributes:
        dim: the configured embedding dimension.
        classes, images: size of the training set.
    """

    @property
    def dim(self) -> int: ...  # noqa: D102

    @property
    def classes(self) -> int: ...  # noqa: D102

    @property
    def images(self) -> int: ...  # noqa: D102

    def network(self, dim: int | None = None) -> EmbeddingNetwork:
        """The configured network, of another embedding dimension where given."""

    def objective(self, dim: int | None = None) -> Objective | ObjectiveSum:
        """The configured objective, for embeddings of a dimension."""


class Learner(nn.Module):
    """Forms embeddings and states what is minimised.

    The loop calls `outputs` on the images of a batch, on all at once or part by part, gathers the rows of all
    processes, and calls `losses` on the whole. Everything a learner keeps (proxies, queues, clusters, policies) is in
    `state_dict()`, and all its parameters exist from construction on, so a killed run resumes exactly.
    """

    views: int = 1
    """Augmentations of each image in a batch: the first is `Batch.images`, the others are `Batch.views`."""

    period: int | None = None
    """Steps between calls of `on_epoch`; None for one after every validation."""

    unit_length: bool = True
    """Whether `embedding` has unit length; a run that evaluates distances of raw embeddings sets it to False."""

    weighs_samples: bool = False
    """Whether `losses` counts samples by `Batch.weight`; a run with weights needs a learner that does."""

    trains: bool = True
    """False for baselines, which take no step."""

    head_parts: tuple[str, ...] = ("train",)
    """Parts of the data whose features `init_head` gets; never the test."""

    paper: str = ""
    """Authors, title, year."""

    @classmethod
    def build(cls, parts: LearnerParts) -> Learner:
        """A learner from the parts that a run offers; keyword-only arguments are options of `[learner]`."""
        raise NotImplementedError

    # What is learned.

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """Tensors by name, each row from its own image alone. Changes no state: two-pass training runs it twice."""
        raise NotImplementedError

    def embedding(self, outputs: Outputs) -> Tensor:
        """(B, D) the declared aggregation: what is evaluated, deployed and shown to adaptive samplers; unit length."""
        raise NotImplementedError

    def scale(self, embedding: Tensor) -> Tensor:
        """(B, D) at unit length, unless the run evaluates raw embeddings."""
        return unit(embedding) if self.unit_length else embedding

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Named terms to add up, over the rows of all processes. Does not change `outputs`."""
        raise NotImplementedError

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Parameters by group: "trunk", "head", "objective" or a name configured in [optimizer.groups.NAME]."""
        return {"trunk": self.parameters()}

    # How images get in.

    def prepare(self, images: Tensor) -> Tensor:
        """Stored uint8 images as the network takes them; (B, D) features as they are."""
        return prepare(images)

    def embed(self, images: Tensor) -> Tensor:
        """(B, D) embeddings of prepared images."""
        return self.embedding(self.outputs(Batch.unlabelled(images)))

    def forward(self, images: Tensor) -> Tensor:
        """(B, D) embeddings of prepared images."""
        return self.embed(images)

    def frozen_state(self) -> set[str]:
        """Names in `state_dict()` that never train; they follow from configuration and seed, so checkpoints omit them.

        By default those of the backbones that the learner's networks keep frozen.
        """
        return {
            f"{module}.backbone.{name}" if module else f"backbone.{name}"
            for module, network in self.named_modules()
            if isinstance(network, EmbeddingNetwork) and network.backbone_frozen and network.backbone is not None
            for name in network.backbone.state_dict()
        }

    def compile_networks(self) -> None:
        """Compile what `outputs` calls: by default every `EmbeddingNetwork` of the learner."""
        for network in self.modules():
            if isinstance(network, EmbeddingNetwork):
                network.compile()

    def frozen_backbone(self) -> Backbone | None:
        """The backbone whose features may be computed once; None where the learner cannot train on such features."""
        return None

    def features(self, images: Tensor, stage: str | None = None) -> Tensor:
        """(B, F) pooled backbone features of prepared images, at the end or after a stage."""
        raise EquimetricError(f"learner {type(self).__name__} has no backbone features")

    def init_head(self, features: Callable[[], Tensor]) -> None:
        """Start the head at the principal components of the (N, F) training features, computed on demand."""
        raise EquimetricError(
            f"learner {type(self).__name__} has no head to start from principal components; "
            "set model.head_init = 'random'"
        )

    # Hooks, which do nothing by default.

    def tasks(self) -> Sequence[Task]:
        """What batches are drawn for; one task by default."""
        return (Task(),)

    def groups(self) -> Groups | None:
        """Clusters of the training rows, for samplers that draw by cluster."""
        return None

    def holdout(self, labels: Tensor) -> Tensor | None:
        """Training rows that are never drawn, given the (N,) class ids; None for none."""
        return None

    def late_parts(self) -> list[LatePart]:
        """What takes part only later in a run; by default of its objectives and of its networks' freeze plans."""
        late = []
        for module in self.modules():
            if isinstance(module, Objective):
                for kind in ("loss", "selection", "references"):
                    if isinstance(part := getattr(module, kind), LateStart):
                        what, first, option = part.starts_after()
                        late.append(LatePart(f"The {what} of {module.name!r}", first, "batches", option))
            if isinstance(module, EmbeddingNetwork):
                plan = module.freeze_plan.first_steps.items()
                late += [
                    LatePart(f"The part {name!r} of the network", step, "steps", "model.freeze") for name, step in plan
                ]
        return late

    def on_epoch(self, view: EpochView) -> None:
        """Inspect the whole training set: cluster it, refresh teachers, update a policy."""

    def before_step(self, step: int) -> bool:
        """Called before every step; True where other parameters require gradients from here on."""
        return False

    def after_step(self, step: int) -> None:
        """Called after every optimiser step: moving averages, queues."""


LEARNERS: Registry[type[Learner]] = Registry("learner", "equimetric.learners")


def learner(name: str, *, paper: str = "") -> Callable[[Definition], Definition]:
    """Register a learner under the name that `[learner] name = …` takes."""

    def decorate(definition: Definition) -> Definition:
        definition.paper = paper
        LEARNERS.add(name, definition, module=definition.__module__)
        return definition

    return decorate
