"""The protocol between a learner and the training loop; the loop uses nothing else of a learner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from equimetric.backbones import Backbone, EmbeddingNetwork
from equimetric.batches import Groups
from equimetric.data.transforms import prepare
from equimetric.errors import EquimetricError
from equimetric.geometry import unit
from equimetric.learners.batch import Batch, Task
from equimetric.learners.epoch_view import EpochView
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.objectives.objective import BaseObjective
from equimetric.registry import Registry

__all__ = ["LEARNERS", "DelayedStart", "HasDelayedStart", "Learner", "LearnerFactory", "Outputs", "learner"]

Outputs = Mapping[str, Tensor]
"""Tensors by name, row i of each computed from image i alone."""

Definition = TypeVar("Definition", bound="type[Learner]")


class DelayedStart(NamedTuple):
    """A part that takes no part in the first batches or steps of a run.

    Attributes:
        part: name of the part, as the start of a sentence.
        first: number of batches, or optimiser steps, before it takes part.
        unit: batches or steps.
        option: the option that sets the number.
    """

    part: str
    first: float
    unit: Literal["batches", "steps"]
    option: str


@runtime_checkable
class HasDelayedStart(Protocol):
    """A loss, selection or kind of references that takes part only after a number of batches, as a memory does."""

    def delayed_start(self) -> tuple[str, int, str]:
        """Its name, the number of batches, and the option that sets the number."""


class LearnerFactory(Protocol):
    """Builds the parts of a learner for a run; each call builds a new part, seeded by the run.

    Attributes:
        dim: the configured embedding dimension.
        classes, images: size of the training set.
        attributes: number of different values of every attribute of the training set, by name.
        modalities: for paired data, the dimensions of the two concatenated kinds of vectors, by name.
        steps, validate_every: length of the run, and steps between its validations.
        seed: seed of the run.
        trains_trunk: whether backbones are trained; False on a frozen one and on given features.
    """

    @property
    def dim(self) -> int: ...  # noqa: D102

    @property
    def classes(self) -> int: ...  # noqa: D102

    @property
    def images(self) -> int: ...  # noqa: D102

    @property
    def attributes(self) -> Mapping[str, int]: ...  # noqa: D102

    @property
    def modalities(self) -> Mapping[str, int]: ...  # noqa: D102

    @property
    def steps(self) -> int: ...  # noqa: D102

    @property
    def validate_every(self) -> int: ...  # noqa: D102

    @property
    def seed(self) -> int: ...  # noqa: D102

    @property
    def trains_trunk(self) -> bool: ...  # noqa: D102

    def network(self, dim: int | None = None, *, num_features: int | None = None) -> EmbeddingNetwork:
        """The configured network, of another embedding dimension, or for a part of given features."""

    def head(self, network: EmbeddingNetwork, dim: int) -> nn.Module:
        """A further head of the configured kind on the features of a network."""

    def objective(self, dim: int | None = None, classes: int | None = None) -> Objective | ObjectiveSum:
        """The configured objective, for embeddings of a dimension and labels below a number of classes."""


class Learner(nn.Module):
    """Forms embeddings and defines the losses.

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

    forward_passes: int = 1
    """Number of passes through a backbone to embed an image."""

    member_labels: Mapping[str, str] = MappingProxyType({})
    """Members that are evaluated by an attribute of the data in place of the classes, with its name."""

    paired: tuple[str, str] | None = None
    """Two members in a common space: each is searched for by the other."""

    paper: str = ""
    """Authors, title, year."""

    @classmethod
    def build(cls, factory: LearnerFactory) -> Learner:
        """Build the learner from the factory's parts; keyword-only arguments are options of `[learner]`."""
        raise NotImplementedError

    # Outputs and losses.

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """Tensors by name, each row from its own image alone. Changes no state: two-pass training runs it twice."""
        raise NotImplementedError

    def embedding(self, outputs: Outputs) -> Tensor:
        """(B, D) the declared aggregation, which is evaluated, deployed and shown to adaptive samplers; unit length."""
        raise NotImplementedError

    def members(self, outputs: Outputs) -> dict[str, Tensor]:
        """(B, d) unit-length embeddings that are aggregated, or evaluated alone, by name; none for a learner of one."""
        return {}

    def training_only(self) -> Iterable[nn.Module]:
        """Modules that an embedding does not need: objectives by default; teachers and regressors are others."""
        return [module for module in self.modules() if isinstance(module, BaseObjective)]

    def normalize(self, embedding: Tensor) -> Tensor:
        """(B, D) at unit length, unless the run evaluates raw embeddings."""
        return unit(embedding) if self.unit_length else embedding

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Named terms to add up, over the rows of all processes. Does not change `outputs`."""
        raise NotImplementedError

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Parameters by group: "trunk", "head", "objective" or a name configured in [optimizer.groups.NAME]."""
        return {"trunk": self.parameters()}

    # Inputs, networks, frozen state.

    def prepare(self, images: Tensor) -> Tensor:
        """Stored uint8 images as the network takes them; (B, D) features as they are."""
        return prepare(images)

    def embed(self, images: Tensor) -> Tensor:
        """(B, D) embeddings of prepared images."""
        return self.embedding(self.outputs(Batch.unlabelled(images)))

    def encode(self, modality: str, inputs: Tensor) -> Tensor:
        """(B, d) unit-length embeddings of prepared inputs of one modality alone, by a learner of two encoders."""
        raise EquimetricError(f"learner {type(self).__name__} has no modalities; embed whole items")

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
        """Compile the modules that `outputs` calls: by default every `EmbeddingNetwork` of the learner."""
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
        """Tasks that batches are drawn for; one by default."""
        return (Task(),)

    def groups(self) -> Groups | None:
        """Clusters of the training rows, for samplers that draw by cluster."""
        return None

    def holdout(self, labels: Tensor) -> Tensor | None:
        """Training rows that are never drawn, given the (N,) class ids; None for none."""
        return None

    def delayed_starts(self) -> list[DelayedStart]:
        """Parts that begin only later in a run; by default those of its objectives and its networks' freeze plans."""
        starts = []
        for module in self.modules():
            if isinstance(module, Objective):
                for kind in ("loss", "selection", "references"):
                    if isinstance(component := getattr(module, kind), HasDelayedStart):
                        name, first, option = component.delayed_start()
                        starts.append(DelayedStart(f"The {name} of {module.name!r}", first, "batches", option))
            if isinstance(module, EmbeddingNetwork):
                plan = module.freeze_plan.first_steps.items()
                starts += [
                    DelayedStart(f"The part {prefix!r} of the network", step, "steps", "model.freeze")
                    for prefix, step in plan
                ]
        return starts

    def on_epoch(self, view: EpochView) -> None:
        """Inspect the whole training set: cluster it, refresh teachers, update a policy."""

    def scalars(self) -> Mapping[str, float]:
        """Values for every line of the log, by name; none by default."""
        return {}

    def pair_objective(self) -> Objective | ObjectiveSum | None:
        """The objective that weighs pairs of the embedding itself; None where there is none, or several."""
        return None

    def before_step(self, step: int) -> bool:
        """Called before every step; True if other parameters require gradients from this step on."""
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
