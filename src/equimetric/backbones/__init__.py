"""Networks that turn images into features, and the head that turns features into embeddings."""

from equimetric.backbones.backbone import Backbone, FrozenBatchNorm, MapBackbone
from equimetric.backbones.bn_inception import BNInception
from equimetric.backbones.conventions import InputConvention
from equimetric.backbones.efficientnet_lite import EfficientNetLite
from equimetric.backbones.freezing import FreezePlan
from equimetric.backbones.heads import HEADS, LayerNormHead, initial_head_by_pca
from equimetric.backbones.library_models import LibraryBackbone
from equimetric.backbones.network import (
    BACKBONES,
    LIBRARY_MODELS,
    BackboneRecord,
    EmbeddingNetwork,
    build_backbone,
    build_network,
    weights_on_offer,
)
from equimetric.backbones.pooling import POOLINGS, GeneralizedMeanPooling
from equimetric.backbones.small_cnn import SmallCNN
from equimetric.backbones.weights import read_weights

__all__ = [
    "BACKBONES",
    "HEADS",
    "LIBRARY_MODELS",
    "POOLINGS",
    "BNInception",
    "Backbone",
    "BackboneRecord",
    "EfficientNetLite",
    "EmbeddingNetwork",
    "FreezePlan",
    "FrozenBatchNorm",
    "GeneralizedMeanPooling",
    "InputConvention",
    "LayerNormHead",
    "LibraryBackbone",
    "MapBackbone",
    "SmallCNN",
    "build_backbone",
    "build_network",
    "initial_head_by_pca",
    "read_weights",
    "weights_on_offer",
]
