"""Which state of a learner never trains."""

from torch import nn

from equimetric.backbones import EmbeddingNetwork

__all__ = ["frozen_names"]


def frozen_names(learner: nn.Module) -> set[str]:
    """State of backbones that never train: it follows from configuration and seed, and is not saved on the way."""
    return {
        f"{module}.backbone.{name}" if module else f"backbone.{name}"
        for module, network in learner.named_modules()
        if isinstance(network, EmbeddingNetwork) and network.backbone_frozen and network.backbone is not None
        for name in network.backbone.state_dict()
    }
