"""HDC: heads at growing depths of one network, each trained on harder pairs than the one before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from equimetric.backbones import Backbone, EmbeddingNetwork
from equimetric.components import FunctionModule
from equimetric.errors import EquimetricError
from equimetric.geometry import unit
from equimetric.learners.batch import Batch
from equimetric.learners.learner import LearnerFactory, Outputs, learner
from equimetric.learners.modules.networks import merge_parameter_groups, require_loss
from equimetric.learners.modules.slices import Slices, aggregate
from equimetric.learners.modules.stages import maps_at_stages, require_stages
from equimetric.learners.single import SingleObjectiveLearner
from equimetric.losses.hdc import RATIOS
from equimetric.losses.members import equal_sizes
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.option_values import PositiveInt, UnitFraction

__all__ = ["HDC", "StageHead"]

PUBLISHED_STAGES = ("inception_4a", "inception_4d", "inception_5b")
"""Default stages for GoogLeNet-like backbones; other backbones have heads at their last stages."""


@learner("hdc", paper="Yuan, Yang, Zhang: Hard-aware deeply cascaded embedding (2017)")
class HDC(SingleObjectiveLearner):
    """A member for each of some stages of the backbone; the last is the network's own head on its features.

    The loss is `hdc`, its options those of the method: `ratios` are the shares of hard pairs, one for each stage, and
    `cascade` lets a member choose among the hard pairs of the one before. Members share the configured dimension
    equally; at unit length they are concatenated.
    """

    def __init__(
        self,
        network: EmbeddingNetwork,
        objective: Objective | ObjectiveSum,
        heads: Iterable[nn.Module],
        stages: Sequence[str],
        slices: Slices,
    ) -> None:
        super().__init__(network, objective)
        self.heads = nn.ModuleList(heads)
        self.stages = tuple(stages)
        self.slices = slices

    @classmethod
    def build(
        cls,
        factory: LearnerFactory,
        *,
        stages: Sequence[str] | None = None,
        hidden: PositiveInt = 1024,
        dropout: UnitFraction = 0.7,
    ) -> HDC:
        """Heads at `stages`, of which the last ends the backbone; the others have `hidden` units and `dropout`."""
        objective = factory.objective()
        ratios = require_loss(objective, FunctionModule, "hdc").options.get("ratios", RATIOS)
        sizes = equal_sizes(factory.dim, len(ratios), "hdc")
        network = factory.network(sizes[-1])
        backbone = require_stages(factory, network, "hdc")
        chosen = choose_stages(backbone, stages, len(ratios))
        heads = [
            StageHead(backbone.stage_channels(stage), hidden, size, dropout)
            for stage, size in zip(chosen, sizes[:-1], strict=False)
        ]
        return cls(network, objective, heads, chosen, Slices.from_sizes(sizes))

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """The concatenated outputs of the heads."""
        backbone = self.network.backbone
        assert backbone is not None, "require_stages"
        maps = maps_at_stages(backbone, batch.images, self.stages)
        *earlier, last = (maps[stage] for stage in self.stages)
        members = [head(stage_maps) for head, stage_maps in zip(self.heads, earlier, strict=True)]
        return {"embedding": torch.cat([*members, self.network.head(backbone.pool(last))], dim=1)}

    def embedding(self, outputs: Outputs) -> Tensor:
        """The concatenated members, with equal weights."""
        if not self.unit_length:
            return outputs["embedding"]
        return self.normalize(aggregate(list(self.slices.split(outputs["embedding"]).values())))

    def members(self, outputs: Outputs) -> dict[str, Tensor]:
        """The head of every stage alone."""
        rows = self.slices.split(outputs["embedding"]).values()
        return {stage: unit(member) for stage, member in zip(self.stages, rows, strict=True)}

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk, all heads, and the parameters of the objective."""
        return merge_parameter_groups([super().parameter_groups(), {"head": list(self.heads.parameters())}])

    def frozen_backbone(self) -> Backbone | None:
        """None: features of the last stage are not enough."""
        return None


class StageHead(nn.Module):
    """Maps of a stage, averaged to 4×4, a 1×1 convolution to 128 channels, and two linear layers, as in GoogLeNet."""

    def __init__(self, channels: int, hidden: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.AdaptiveAvgPool2d(4),
            nn.Conv2d(channels, 128, kernel_size=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128 * 16, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, dim),
        )

    def forward(self, maps: Tensor) -> Tensor:
        """(B, channels, h, w) → (B, dim)."""
        output: Tensor = self.layers(maps)
        return output


def choose_stages(backbone: Backbone, stages: Sequence[str] | None, n: int) -> tuple[str, ...]:
    """As many stages as there are members, in order, the last one that of the backbone."""
    names = backbone.stages
    if stages is None:
        published = n == len(PUBLISHED_STAGES) and set(PUBLISHED_STAGES) <= set(names)
        stages = PUBLISHED_STAGES if published else names[-n:]
    chosen = tuple(stages)
    if len(chosen) != n or chosen != tuple(stage for stage in names if stage in chosen) or chosen[-1] != names[-1]:
        raise EquimetricError(
            f"learner 'hdc' needs {n} stages, one for each ratio of its loss, from input to output with "
            f"{names[-1]!r} as the last, got {', '.join(chosen)}; {backbone.label} has {', '.join(names)}"
        )
    return chosen
