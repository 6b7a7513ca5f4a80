"""Networks that turn images into features, and heads that turn features into embeddings.

Every file registers its own components (`equimetric.backbones.registry`): `@backbone`, `@head`, `@pooling`.
"""

from equimetric.backbones.backbone import Backbone, FrozenBatchNorm, MapBackbone, Stage
from equimetric.backbones.bn_inception import BNInception
from equimetric.backbones.build import (
    LIBRARY_MODELS,
    build_backbone,
    describe_weight_options,
    find_input_size,
    find_weight_file,
)
from equimetric.backbones.conventions import InputConvention
from equimetric.backbones.efficientnet_lite import EfficientNetLite
from equimetric.backbones.freezing import FreezePlan
from equimetric.backbones.heads import LayerNormHead, build_head, init_head_by_pca, require_directions
from equimetric.backbones.library_models import LibraryBackbone
from equimetric.backbones.network import EmbeddingNetwork, build_network, build_trunk
from equimetric.backbones.pooling import GeneralizedMeanPooling
from equimetric.backbones.registry import BACKBONES, HEADS, POOLINGS, BackboneRecord
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
    "Stage",
    "build_backbone",
    "build_head",
    "build_network",
    "build_trunk",
    "describe_weight_options",
    "find_input_size",
    "find_weight_file",
    "init_head_by_pca",
    "read_weights",
    "require_directions",
]
