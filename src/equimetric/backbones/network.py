"""Backbone, head and unit length: an image in, an embedding out."""

import math
from collections.abc import Iterable, Iterator, Mapping

from torch import Tensor, nn

from equimetric.backbones.backbone import Backbone, FrozenBatchNorm
from equimetric.backbones.build import build_backbone
from equimetric.backbones.conventions import InputConvention
from equimetric.backbones.freezing import FreezePlan
from equimetric.backbones.heads import build_head
from equimetric.errors import EquimetricError
from equimetric.geometry import unit

__all__ = ["EmbeddingNetwork", "build_network", "build_trunk"]


class EmbeddingNetwork(nn.Module):
    """A backbone and a head; `forward` gives raw outputs, `embed` unit-length embeddings.

    Features (N, D) are accepted in place of images and skip the backbone. Where the data themselves are features,
    `backbone` is None and nothing else is accepted.
    """

    def __init__(self, backbone: Backbone | None, head: nn.Module, freeze_plan: FreezePlan | None = None) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.backbone_frozen = False
        self.freeze_plan = freeze_plan or FreezePlan()
        self._freeze_stage = -1
        self.before_step(0)

    @property
    def convention(self) -> InputConvention:
        """The input that the backbone's weights expect."""
        return self._require_backbone().convention

    def prepare(self, images: Tensor) -> Tensor:
        """Stored images (uint8) by the backbone's input convention; features (N, D) unchanged."""
        return images if images.ndim == 2 else self.convention.apply(images)

    def features(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, features) by the backbone; features (B, features) unchanged."""
        if images.ndim == 2:
            return images
        features: Tensor = self._require_backbone()(images)
        return features

    def forward(self, images: Tensor) -> Tensor:
        """Images or features → (B, dim), not normalised: an objective normalises where its paper does."""
        output: Tensor = self.head(self.features(images))
        return output

    def embed(self, images: Tensor) -> Tensor:
        """Images or features → (B, dim) of unit length, for evaluation and deployment."""
        return unit(self(images))

    def freeze_backbone(self) -> None:
        """Keep the backbone fixed: no gradients, and evaluation mode whatever mode `train()` sets."""
        self._require_backbone().requires_grad_(False)
        self.backbone_frozen = True
        self.train(self.training)

    def train(self, mode: bool = True) -> "EmbeddingNetwork":
        """Set the mode; a frozen backbone stays in evaluation mode."""
        if not self.backbone_frozen:
            super().train(mode)
            return self
        # Its hundreds of modules are left alone where they are in that mode: heads are validated often.
        self.training = mode
        for child in self.children():
            if child is not self.backbone:
                child.train(mode)
            elif child.training:
                child.eval()
        return self

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Parameters of trunk and head; a frozen backbone has none to train."""
        frozen = self.backbone is None or self.backbone_frozen
        return {
            "trunk": () if frozen else self._require_backbone().parameters(),
            "head": self.head.parameters(),
        }

    def trained_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters that are trained at some step: now, or later by the freeze plan."""
        for name, parameter in self.named_parameters():
            if self.backbone_frozen and name.startswith("backbone."):
                continue
            if parameter.requires_grad or 0 < self.freeze_plan.first_step(name) < math.inf:
                yield parameter

    def before_step(self, step: int) -> bool:
        """Apply the freeze plan at this step; True where other parameters require gradients from here on.

        An optimiser may hold all parameters from the start: it skips those without a gradient.
        """
        stage = self.freeze_plan.stage(step) if self.freeze_plan.first_steps else 0
        if stage == self._freeze_stage:
            return False
        self._freeze_stage = stage
        if self.freeze_plan.first_steps:
            self.freeze_plan.apply(self, step)
            if self.backbone is not None:
                # The plan ignores frozen batch normalisation and a frozen backbone.
                self.backbone.freeze_batch_norm(self.backbone.frozen_batch_norm)
                if self.backbone_frozen:
                    self.freeze_backbone()
        return True

    def _require_backbone(self) -> Backbone:
        if self.backbone is None:
            raise EquimetricError("this network has no backbone: it takes feature vectors (N, D) only, not images")
        return self.backbone


def build_network(
    name: str,
    *,
    channels: int,
    dim: int,
    head: str = "linear",
    dropout: float = 0.0,
    pooling: str | None = None,
    pretrained: str | None = None,
    load: bool = True,
    frozen_batch_norm: FrozenBatchNorm = False,
    freeze: FreezePlan | Mapping[str, float] | Iterable[str] = (),
) -> EmbeddingNetwork:
    """A network by the name of its backbone, with a freshly initialised head.

    `pooling` names one of `POOLINGS` to replace the backbone's own; `pretrained` and `load` as for `build_backbone`;
    `freeze` lists parameter-name prefixes that are never trained, or maps prefixes to first steps (`FreezePlan`).
    """
    backbone = build_trunk(
        name,
        channels=channels,
        pooling=pooling,
        pretrained=pretrained,
        load=load,
        frozen_batch_norm=frozen_batch_norm,
    )
    return EmbeddingNetwork(
        backbone, build_head(head, backbone.num_features, dim, dropout), FreezePlan.from_config(freeze)
    )


def build_trunk(
    name: str,
    *,
    channels: int,
    pooling: str | None = None,
    pretrained: str | None = None,
    load: bool = True,
    frozen_batch_norm: FrozenBatchNorm = False,
) -> Backbone:
    """The backbone of a network, with its pooling and its kind of batch normalisation (see `build_network`)."""
    backbone = build_backbone(name, channels=channels, pretrained=pretrained, load=load)
    if pooling is not None:
        backbone.set_pooling(pooling)
    if frozen_batch_norm:
        backbone.freeze_batch_norm(frozen_batch_norm)
    return backbone
