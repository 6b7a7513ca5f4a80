"""The base of all backbones: features, an input convention, named stages, freezable batch normalisation."""

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from torch import Tensor, nn

from equimetric.backbones.conventions import InputConvention
from equimetric.backbones.pooling import build_pooling
from equimetric.errors import EquimetricError

__all__ = ["Backbone", "FrozenBatchNorm", "MapBackbone", "Stage"]

FrozenBatchNorm: TypeAlias = bool | Literal["statistics"]
"""Frozen whole (running statistics, scale and shift), not at all, or the running statistics alone."""


class Stage(NamedTuple):
    """Output of a stage: its channels, and how many input pixels one step of its maps spans."""

    channels: int
    stride: int


class Backbone(nn.Module):
    """Images in, `num_features` numbers per image out.

    A backbone with named stages runs `forward_stage` for each of them in order and then `pool`. Heads at several depths
    split it there: `forward_from(forward_to(images, stage), stage)` equals `forward(images)` for every stage.
    """

    num_features: int
    convention: InputConvention
    frozen_batch_norm: FrozenBatchNorm = False

    def __init__(self) -> None:
        super().__init__()
        self.stage_outputs: dict[str, Stage] = {}

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages from input to output; empty where the backbone cannot be split."""
        return tuple(self.stage_outputs)

    def stage_channels(self, stage: str) -> int:
        """Channels of the maps after a stage."""
        return self.stage_outputs[self._find_stage(stage)].channels

    def stage_stride(self, stage: str) -> int:
        """Side of the image over side of the maps after a stage, up to rounding."""
        return self.stage_outputs[self._find_stage(stage)].stride

    def forward_to(self, images: Tensor, stage: str) -> Tensor:
        """(B, C, H, W) → (B, stage_channels, h, w): the maps after a stage."""
        stages = self.stages
        maps = self.prepare_input(images)
        for name in stages[: stages.index(self._find_stage(stage)) + 1]:
            maps = self.forward_stage(name, maps)
        return maps

    def forward_from(self, maps: Tensor, stage: str) -> Tensor:
        """(B, stage_channels, h, w) → (B, num_features): the rest of the backbone after a stage."""
        stages = self.stages
        for name in stages[stages.index(self._find_stage(stage)) + 1 :]:
            maps = self.forward_stage(name, maps)
        return self.pool(maps)

    def prepare_input(self, images: Tensor) -> Tensor:
        """Images as the first stage takes them."""
        return images

    def forward_stage(self, stage: str, maps: Tensor) -> Tensor:
        """Maps after a stage, from those before it, which stay unchanged."""
        raise NotImplementedError

    def pool(self, maps: Tensor) -> Tensor:
        """(B, channels of the last stage, h, w) → (B, num_features)."""
        raise NotImplementedError

    def set_pooling(self, pooling: str) -> None:
        """Replace the pooling of the last maps, by a name of `POOLINGS`."""
        raise EquimetricError(
            f"{self.label} has no feature maps to pool by {pooling!r}; leave `pooling` out to use its own"
        )

    @property
    def label(self) -> str:
        """Name of the backbone in error messages."""
        return type(self).__name__

    def _find_stage(self, stage: str) -> str:
        if stage not in self.stage_outputs:
            explanation = (
                f"its stages are {', '.join(self.stages)}" if self.stages else "it cannot be split into stages"
            )
            raise EquimetricError(f"{self.label} has no stage {stage!r}; {explanation}")
        return stage

    def batch_norms(self) -> Iterator[nn.modules.batchnorm._BatchNorm]:
        """All batch normalisation layers."""
        return (module for module in self.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm))

    def freeze_batch_norm(self, frozen: FrozenBatchNorm = True) -> None:
        """Use the running statistics and never update them, whatever mode `train()` sets.

        `True` freezes scale and shift too; 'statistics' leaves them to the optimiser.
        """
        if frozen not in (True, False, "statistics"):
            raise EquimetricError(f"frozen_batch_norm is true, false or 'statistics', not {frozen!r}")
        self.frozen_batch_norm = frozen
        if frozen is True:
            for norm in self.batch_norms():
                norm.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> "Backbone":
        """Set the mode; frozen batch normalisation stays in evaluation mode.

        So does a layer whose scale does not require gradients: drifting statistics would change a part that is
        meant to stay fixed.
        """
        super().train(mode)
        if mode:
            for norm in self.batch_norms():
                if self.frozen_batch_norm or (norm.affine and not norm.weight.requires_grad):
                    norm.eval()
        return self


class MapBackbone(Backbone):
    """A backbone whose stages end in feature maps, `map_channels` channels each, with an exchangeable pooling."""

    map_channels: int

    def __init__(self) -> None:
        super().__init__()
        self.pooling = build_pooling("avg")

    def forward_maps(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, map_channels, h, w)."""
        return self.forward_to(images, self.stages[-1])

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, num_features)."""
        return self.pool(self.forward_maps(images))

    def pool(self, maps: Tensor) -> Tensor:
        """(B, map_channels, h, w) → (B, num_features)."""
        features: Tensor = self.pooling(maps)
        return features

    def set_pooling(self, pooling: str) -> None:
        """Replace the pooling of the last maps, by a name of `POOLINGS`."""
        self.pooling = build_pooling(pooling)
        self.num_features = self.map_channels
