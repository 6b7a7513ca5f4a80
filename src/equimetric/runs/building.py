"""A learner from a configuration: a function of configuration, seed and the shape of the data."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn

from equimetric.backbones import Backbone, EmbeddingNetwork, FreezePlan, build_head, build_trunk
from equimetric.errors import EquimetricError, did_you_mean
from equimetric.learners import LEARNERS, Learner
from equimetric.learners.modules.networks import feature_dim
from equimetric.objectives import Context, Objective, ObjectiveSum, build_objective
from equimetric.objectives.own import MissingObjective
from equimetric.option_values import check_options
from equimetric.plugins import describe_missing
from equimetric.runs.configuration import RunConfig
from equimetric.runs.regimes import fit_to_data
from equimetric.runs.result import DataShape
from equimetric.runs.run_cache import RunCache
from equimetric.runs.start import load_start
from equimetric.seeding import derive_seed

__all__ = ["RunLearnerFactory", "build_learner", "count_parameters"]


@dataclass
class RunLearnerFactory:
    """Builds the parts of a learner for a run.

    Attributes:
        config: the configuration of the run.
        shape: channels, classes and images of the data.
        pretrained: whether weight files are read; False where weights are loaded afterwards.
        cache: keeps the frozen backbones that other runs of this process may have built.
    """

    config: RunConfig
    shape: DataShape
    pretrained: bool = True
    cache: RunCache | None = None
    _networks: int = field(default=0, init=False)
    _objectives: int = field(default=0, init=False)
    _heads: int = field(default=0, init=False)

    @property
    def dim(self) -> int:
        """The configured embedding dimension."""
        assert self.config.model.dim is not None, "fit_to_data chooses one"
        return self.config.model.dim

    @property
    def classes(self) -> int:
        """Training classes."""
        return self.shape.classes

    @property
    def images(self) -> int:
        """Training images."""
        return self.shape.images

    @property
    def attributes(self) -> Mapping[str, int]:
        """Numbers of values, by attribute of the training set."""
        return self.shape.attributes

    @property
    def modalities(self) -> Mapping[str, int]:
        """Dimensions of the two kinds of vectors of paired data."""
        return self.shape.modalities

    @property
    def steps(self) -> int:
        """The budget; a final model may stop earlier."""
        return self.config.training.steps

    @property
    def validate_every(self) -> int:
        """Steps between validations."""
        return self.config.training.validate_every

    def network(self, dim: int | None = None, *, num_features: int | None = None) -> EmbeddingNetwork:
        """A freshly initialised network; on data that are features, for this number of them.

        The seed depends on the run's seed and on the number of networks built before, never on the method: all
        methods of a study start from the same weights.
        """
        self._seed("network", self._networks)
        self._networks += 1
        model = self.config.model
        if self.shape.vectors:
            if model.frozen:
                raise EquimetricError("model.frozen computes features of images, and these data are features already")
            features = num_features or self.shape.channels
            return EmbeddingNetwork(None, build_head(model.head, features, dim or self.dim, model.dropout))
        backbone = self.backbone()
        head = build_head(model.head, backbone.num_features, dim or self.dim, model.dropout)
        network = EmbeddingNetwork(backbone, head, FreezePlan.from_config(model.freeze))
        if model.frozen:
            network.freeze_backbone()
        return network

    def head(self, network: EmbeddingNetwork, dim: int) -> nn.Module:
        """A freshly initialised head on the features of a network."""
        self._heads += 1
        self._seed("head", self._heads)
        return build_head(self.config.model.head, feature_dim(network), dim, self.config.model.dropout)

    def backbone(self) -> Backbone:
        """The configured backbone; a frozen one that other runs have built, too, where these are kept."""
        model = self.config.model
        build = partial(
            build_trunk,
            model.backbone,
            channels=self.shape.channels,
            pooling=model.pooling,
            pretrained=model.pretrained,
            load=self.pretrained,
            frozen_batch_norm=model.frozen_batch_norm,
        )
        # The network of another run is loaded into this one, and must not reach others.
        if self.cache is None or not model.frozen or not self.pretrained or model.start is not None:
            return build()
        return self.cache.backbone(self.config, build, self.shape.channels, self._networks)

    @property
    def trains_trunk(self) -> bool:
        """Whether backbones are trained: the data are images, and no backbone is frozen."""
        return not self.shape.vectors and not self.config.model.frozen

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config.seed

    def objective(self, dim: int | None = None, classes: int | None = None) -> Objective | ObjectiveSum:
        """The configured objective, for embeddings of a dimension and labels below a number of classes."""
        self._seed("objective", self._objectives)
        self._objectives += 1
        options = self.config.options
        if any(value and name.rpartition(".")[2] == "sharded" for name, value in options.items()):
            raise EquimetricError("a training run keeps all class weights in every process; leave out options.sharded")
        context = Context(classes=classes or self.shape.classes, dim=dim or self.dim, images=self.shape.images)
        try:
            return build_objective(self.config.method, options, context)
        except EquimetricError as error:
            if self.pretrained:
                raise
            # A stored model embeds without its objective, which may be of a plug-in that is not here.
            reason = "; ".join(filter(None, [str(error), describe_missing(self.config.plugins)]))
            return MissingObjective(reason)  # type: ignore[return-value]

    def _seed(self, purpose: str, index: int) -> None:
        # Networks are built on the CPU; `torch.manual_seed` would note the call for every other device, run after run.
        torch.default_generator.manual_seed(derive_seed(self.config.seed, purpose, *([index] if index else [])))


def build_learner(
    config: RunConfig, shape: DataShape, *, pretrained: bool = True, cache: RunCache | None = None
) -> Learner:
    """The learner as it is before its first step, with a frozen backbone from those that are shared."""
    config = fit_to_data(config, shape)
    definition = LEARNERS.find(config.learner.name)
    parameters = inspect.signature(definition.build).parameters.values()
    valid_options = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for option in config.learner.options:
        if option not in valid_options:
            raise EquimetricError(
                f"learner {config.learner.name!r} has no option {option!r}; {did_you_mean(option, valid_options)}"
            )
    options = check_options(f"learner {config.learner.name!r}", definition.build, config.learner.options)
    learner = definition.build(RunLearnerFactory(config, shape, pretrained, cache), **options)
    learner.unit_length = config.evaluation.unit_length()
    if pretrained and config.model.start is not None:
        load_start(learner, config)
    return learner


def count_parameters(learner: Learner) -> int:
    """The number of learnable values, frozen ones included."""
    return sum(parameter.numel() for parameter in learner.parameters())
