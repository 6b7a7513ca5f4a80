"""Networks that turn images into features, and the head that turns features into embeddings."""

from equimetric.backbones.heads import HEADS, LayerNormHead
from equimetric.backbones.network import BACKBONES, EmbeddingNetwork, build_network
from equimetric.backbones.small_cnn import SmallCNN

__all__ = ["BACKBONES", "HEADS", "EmbeddingNetwork", "LayerNormHead", "SmallCNN", "build_network"]
