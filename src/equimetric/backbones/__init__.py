"""Networks that turn images into features, and the head that turns features into embeddings."""

from equimetric.backbones.network import BACKBONES, EmbeddingNetwork, build_network
from equimetric.backbones.small_cnn import SmallCNN

__all__ = ["BACKBONES", "EmbeddingNetwork", "SmallCNN", "build_network"]
