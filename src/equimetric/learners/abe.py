"""ABE: one network that looks at an image through several attention masks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import torch
from torch import Tensor, nn

from equimetric.backbones import Backbone, EmbeddingNetwork, init_head_by_pca
from equimetric.errors import EquimetricError
from equimetric.geometry import unit
from equimetric.learners.batch import Batch
from equimetric.learners.learner import Learner, LearnerFactory, Outputs, learner
from equimetric.learners.modules.networks import backbone_features, merge_parameter_groups, objective_terms
from equimetric.learners.modules.slices import aggregate
from equimetric.learners.modules.stages import require_stages
from equimetric.learners.single import refuse_epoch_hooks
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.option_values import NonNegativeFloat, PositiveFloat, PositiveInt

__all__ = ["ABE", "AttentionMasks", "divergence"]

PUBLISHED_STAGE = "inception_3c"
"""The stage at GoogLeNet's pool3; other backbones have masks after their middle stage."""


def divergence(members: Sequence[Tensor], margin: float = 1.0) -> Tensor:
    """mean_i Σ_{p<q} [margin − ‖B_p(x_i) − B_q(x_i)‖²]₊ of (B, d) members at unit length: same image, two members."""
    vectors = [unit(rows) for rows in members]
    terms = [(margin - (left - right).square().sum(1)).relu() for left, right in combinations(vectors, 2)]
    return torch.stack(terms).sum(0).mean() if terms else vectors[0].new_zeros(())


class AttentionMasks(nn.Module):
    """M masks with a value between 0 and 1 for every channel and position of a map.

    A 3×3 convolution with ReLU that all members share, then for each a 1×1 convolution and a sigmoid. The shared part
    of the paper is a copy of GoogLeNet's next five modules.
    """

    def __init__(self, channels: int, members: int) -> None:
        super().__init__()
        self.shared = nn.Sequential(nn.Conv2d(channels, channels, kernel_size=3, padding=1), nn.ReLU())
        self.own = nn.Conv2d(channels, members * channels, kernel_size=1)
        self.members = members

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) → (B, M, C, h, w)."""
        masks: Tensor = self.own(self.shared(maps)).sigmoid()
        return masks.view(-1, self.members, *maps.shape[1:])


@learner("abe", paper="Kim, Goyal, Chawla, Lee, Kwon: Attention-based ensemble for deep metric learning (2018)")
class ABE(Learner):
    """M members B_m(x) = G(S(x) ⊙ A_m(S(x))): S the network up to a stage, A_m a mask, G the rest with one linear head.

    L = Σ_m L_m(B_m) + lambda_div · mean_i Σ_{p<q} [margin_div − ‖B_p(x_i) − B_q(x_i)‖²]₊, each L_m an objective of its
    own, the published one `contrastive`. Members share the configured dimension equally, since they share the head; at
    unit length they are concatenated. An image passes the rest of the network M times.
    """

    def __init__(
        self,
        network: EmbeddingNetwork,
        objectives: Iterable[Objective | ObjectiveSum],
        masks: AttentionMasks,
        stage: str,
        *,
        lambda_div: float = 1.0,
        margin_div: float = 1.0,
    ) -> None:
        super().__init__()
        self.network = network
        self.objectives = nn.ModuleList(objectives)
        self.masks = masks
        self.stage = stage
        self.lambda_div, self.margin_div = lambda_div, margin_div
        self.names = [f"member{index}" for index in range(1, masks.members + 1)]
        self.forward_passes = masks.members
        for objective in self.objective_list:
            refuse_epoch_hooks(objective, "abe")

    @classmethod
    def build(
        cls,
        factory: LearnerFactory,
        *,
        members: PositiveInt = 8,
        stage: str | None = None,
        lambda_div: NonNegativeFloat = 1.0,
        margin_div: PositiveFloat = 1.0,
    ) -> ABE:
        """`members` masks after a `stage` of the backbone."""
        if factory.dim % members:
            raise EquimetricError(
                f"learner 'abe': {members} members share one head, so model.dim must be a multiple of {members}, "
                f"got {factory.dim}"
            )
        size = factory.dim // members
        network = factory.network(size)
        backbone = require_stages(factory, network, "abe")
        chosen = choose_stage(backbone) if stage is None else stage
        masks = AttentionMasks(backbone.stage_channels(chosen), members)
        objectives = [factory.objective(size) for _ in range(members)]
        return cls(network, objectives, masks, chosen, lambda_div=lambda_div, margin_div=margin_div)

    @property
    def objective_list(self) -> Sequence[Objective | ObjectiveSum]:
        """The objectives, one for each member."""
        return list(self.objectives)  # type: ignore[arg-type]

    def prepare(self, images: Tensor) -> Tensor:
        """Images by the input convention of the backbone's weights."""
        return self.network.prepare(images)

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """(B, D / M) of every member."""
        backbone = self.network.backbone
        assert backbone is not None, "require_stages"
        maps = backbone.forward_to(batch.images, self.stage)
        attended = (self.masks(maps) * maps.unsqueeze(1)).flatten(0, 1)
        embeddings = self.network.head(backbone.forward_from(attended, self.stage))
        by_member = embeddings.view(-1, self.masks.members, embeddings.shape[1]).unbind(1)
        return dict(zip(self.names, by_member, strict=True))

    def embedding(self, outputs: Outputs) -> Tensor:
        """The concatenated members, with equal weights."""
        rows = [outputs[name] for name in self.names]
        return self.normalize(aggregate(rows)) if self.unit_length else torch.cat(rows, dim=1)

    def members(self, outputs: Outputs) -> dict[str, Tensor]:
        """The embedding through each mask alone."""
        return {name: unit(outputs[name]) for name in self.names}

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The terms of every member's objective, and the divergence of the members' embeddings of an image."""
        terms = {
            f"{name} {term}": value
            for name, objective in zip(self.names, self.objective_list, strict=True)
            for term, value in objective_terms(objective, outputs[name], batch).items()
        }
        separation = divergence([outputs[name] for name in self.names], self.margin_div)
        return {**terms, "divergence": self.lambda_div * separation}

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk, head with the masks, and the parameters of the objectives."""
        mask_group = {"head": list(self.masks.parameters())}
        return merge_parameter_groups([self.network.parameter_groups(), mask_group], objective=self.objectives)

    def features(self, images: Tensor, stage: str | None = None) -> Tensor:
        """Features of the backbone, without a mask."""
        return backbone_features(self.network, images, stage)

    def init_head(self, features: Callable[[], Tensor]) -> None:
        """Start the head at the principal components of features without masks."""
        init_head_by_pca(self.network.head, features())

    def before_step(self, step: int) -> bool:
        """Follow the network's freeze plan."""
        return self.network.before_step(step)


def choose_stage(backbone: Backbone) -> str:
    """The published stage, or the middle one."""
    stages = backbone.stages
    return PUBLISHED_STAGE if PUBLISHED_STAGE in stages else stages[len(stages) // 2]
