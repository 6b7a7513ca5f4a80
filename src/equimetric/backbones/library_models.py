"""Any model of timm or torchvision as a backbone: `timm:resnet50`, `torchvision:vit_b_16`."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from equimetric.backbones.backbone import Backbone, Stage
from equimetric.backbones.conventions import InputConvention
from equimetric.backbones.pooling import build_pooling
from equimetric.backbones.torchvision_import import import_vision_library
from equimetric.backbones.weights import first_line, load_pretrained, read_weights
from equimetric.errors import EquimetricError, did_you_mean

__all__ = ["LibraryBackbone", "timm_backbone", "torchvision_backbone"]


CLASSIFIERS = ("fc", "classifier", "head", "heads")
"""Names of the part of torchvision's models that ends in the classifier."""

AUXILIARY_CLASSIFIERS = ("aux1", "aux2", "AuxLogits")
"""Further classifiers on intermediate layers, of GoogLeNet and Inception v3."""

RESNET_LAYERS = ("layer1", "layer2", "layer3", "layer4")
RESNETS: dict[tuple[str, ...], str] = {
    ("conv1", "bn1", activation, "maxpool", *RESNET_LAYERS, pooling, "fc"): pooling
    for activation, pooling in (("relu", "avgpool"), ("act1", "global_pool"))
}
"""Child modules of a ResNet of torchvision or timm, which it calls in this order → the name of its pooling."""


class LibraryBackbone(Backbone):
    """A classification model without its classifier.

    Its features are counted by running it once, since libraries do not agree on where they state the number. ResNets
    have the stages conv1 (with its pooling), layer1, …, layer4; other models cannot be split.
    """

    def __init__(self, name: str, model: nn.Module, convention: InputConvention) -> None:
        super().__init__()
        self.name = name
        self.model = model
        self.convention = convention
        children = tuple(child for child, _ in model.named_children())
        self.pooling_name = RESNETS.get(children)
        self.stage_layers: dict[str, tuple[str, ...]] = {}
        if self.pooling_name is not None:
            self.stage_layers = {"conv1": children[:4], **{layer: (layer,) for layer in RESNET_LAYERS}}
        self.num_features = self._count_features()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def label(self) -> str:
        """Name of the backbone in error messages."""
        return self.name

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, num_features)."""
        features: Tensor = self.model(self.prepare_input(images))
        return features

    def prepare_input(self, images: Tensor) -> Tensor:
        """Images in channels-last layout."""
        return images.contiguous(memory_format=torch.channels_last)

    def forward_stage(self, stage: str, maps: Tensor) -> Tensor:
        """The child modules of one stage, one after the other."""
        for layer in self.stage_layers[stage]:
            maps = self.model.get_submodule(layer)(maps)
        return maps

    def pool(self, maps: Tensor) -> Tensor:
        """The model's own pooling and what remains of its classifier."""
        assert self.pooling_name is not None
        pooled: Tensor = self.model.get_submodule(self.pooling_name)(maps)
        features: Tensor = self.model.get_submodule("fc")(pooled.flatten(1))
        return features

    def set_pooling(self, pooling: str) -> None:
        """Replace the model's own pooling module."""
        replacement = build_pooling(pooling)
        for path in ("global_pool", "head.global_pool", "avgpool"):
            parent, _, attribute = path.rpartition(".")
            parent_module = getattr(self.model, parent, None) if parent else self.model
            current = getattr(parent_module, attribute, None)
            if not isinstance(parent_module, nn.Module) or not isinstance(current, nn.Module):
                continue
            pooled = current(torch.zeros(1, 2, 3, 3)).shape
            if pooled == (1, 2, 1, 1):
                replacement = nn.Sequential(replacement, nn.Unflatten(1, (-1, 1, 1)))
            elif pooled != (1, 2):
                continue  # channels in the last dimension: not the maps that poolings take
            setattr(parent_module, attribute, replacement)
            self.num_features = self._count_features()
            return
        raise EquimetricError(
            f"{self.name} has no exchangeable pooling for {pooling!r}; leave `pooling` out to use its own"
        )

    @torch.no_grad()
    def _count_features(self) -> int:
        """Run the model on a blank image: the number of its features, and channels and stride of its stages."""
        was_training, side = self.training, self.convention.size
        ends = {stage: self.model.get_submodule(layers[-1]) for stage, layers in self.stage_layers.items()}
        hooks = [module.register_forward_hook(self._stage_hook(stage)) for stage, module in ends.items()]
        output = self.eval().model(torch.zeros(1, self.convention.channels, side, side))
        self.train(was_training)
        for hook in hooks:
            hook.remove()
        if not isinstance(output, Tensor) or output.ndim != 2:
            raise EquimetricError(f"{self.name} does not give one vector per image; choose a classification model")
        return int(output.shape[1])

    def _stage_hook(self, stage: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def hook(module: nn.Module, inputs: Any, maps: Tensor) -> None:  # noqa: ARG001
            # Sides are rounded up at every stage, strides are powers of two.
            stride = 2 ** round(math.log2(self.convention.size / maps.shape[2]))
            self.stage_outputs[stage] = Stage(maps.shape[1], stride)

        return hook


def timm_backbone(model_name: str, pretrained: str | None = None, *, load: bool = True) -> LibraryBackbone:
    """A timm model by name; `pretrained` is 'timm' for its download, or a file for this model."""
    timm: Any = import_vision_library("timm")
    name = f"timm:{model_name}"
    architecture = model_name.partition(".")[0]
    if not timm.is_model(architecture):
        raise EquimetricError(f"timm has no model {model_name!r}; {did_you_mean(architecture, timm.list_models())}")
    _require_own_weights(name, pretrained)
    with _explain_download(name):
        model = timm.create_model(model_name, pretrained=load and pretrained == "timm", num_classes=0)
    settings = timm.data.resolve_model_data_config(model)
    size = int(settings["input_size"][-1])
    convention = InputConvention.of_unit_range(
        size,
        max(size, math.floor(size / settings["crop_pct"])),
        tuple(settings["mean"]),
        tuple(settings["std"]),
        _interpolation(settings["interpolation"]),
    )
    if load and pretrained is not None and pretrained != "timm":
        classifiers = model.pretrained_cfg.get("classifier") or ()
        _load_except(model, pretrained, (classifiers,) if isinstance(classifiers, str) else tuple(classifiers))
    return LibraryBackbone(name, model, convention)


def torchvision_backbone(model_name: str, pretrained: str | None = None, *, load: bool = True) -> LibraryBackbone:
    """A torchvision classification model by name; `pretrained` is 'torchvision' for its download, or a file."""
    models: Any = import_vision_library("torchvision.models")
    name = f"torchvision:{model_name}"
    valid_names = models.list_models(module=models)
    if model_name not in valid_names:
        raise EquimetricError(f"torchvision has no model {model_name!r}; {did_you_mean(model_name, valid_names)}")
    _require_own_weights(name, pretrained)
    weights = models.get_model_weights(model_name).DEFAULT
    options: dict[str, Any] = {}
    download = load and pretrained == "torchvision"
    if model_name in ("googlenet", "inception_v3") and not download:
        # Their published weights expect the model to re-normalise its input; the library switches that on only where
        # it loads the weights itself. What was trained from such weights, and is loaded later, expects it too.
        options = {"init_weights": pretrained is None, "transform_input": pretrained is not None}
    with _explain_download(name):
        model = models.get_model(model_name, weights=weights if download else None, **options)
    classifier = _remove_classifier(name, model)
    for part in AUXILIARY_CLASSIFIERS:
        if hasattr(model, part):
            setattr(model, part, None)
            model.aux_logits = False
    if load and pretrained is not None and pretrained != "torchvision":
        _load_except(model, pretrained, (classifier, *AUXILIARY_CLASSIFIERS))
    preset = weights.transforms()
    size = int(preset.crop_size[0])
    convention = InputConvention.of_unit_range(
        size,
        max(size, int(preset.resize_size[0])),
        tuple(preset.mean),
        tuple(preset.std),
        _interpolation(preset.interpolation.value),
    )
    return LibraryBackbone(name, model, convention)


def _remove_classifier(name: str, model: nn.Module) -> str:
    """Replace the last linear layer by an identity and return its name."""
    linear: list[str] = [path for path, module in model.named_modules() if isinstance(module, nn.Linear)]
    ends = [path for path in linear if path.partition(".")[0] in CLASSIFIERS]
    if not ends:
        raise EquimetricError(f"{name} has no linear classifier to remove; choose another model")
    parent, _, attribute = ends[-1].rpartition(".")
    setattr(model.get_submodule(parent), attribute, nn.Identity())
    for path, module in model.named_modules():
        if isinstance(module, nn.Dropout) and path.partition(".")[0] in ("dropout", *CLASSIFIERS):
            module.p = 0.0  # the classifier's own; the head here has its own dropout
    return ends[-1]


def _load_except(model: nn.Module, path: str, dropped: tuple[str, ...]) -> None:
    """Load a file, except for the parts with these names."""
    prefixes = tuple(f"{part}." for part in dropped)
    weights = {name: value for name, value in read_weights(path).items() if not name.startswith(prefixes)}
    load_pretrained(model, weights, path)


def _require_own_weights(name: str, pretrained: str | None) -> None:
    library = name.partition(":")[0]
    if pretrained in {"package", "timm", "torchvision"} - {library}:
        raise EquimetricError(
            f"there are no weights {pretrained!r} for {name}; `pretrained` is {library!r} to download them or a file"
        )


@contextmanager
def _explain_download(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # covers every failure to reach a server or a file
        raise EquimetricError(
            f"the weights of {name} could not be downloaded ({first_line(error)}); give the path of a weight file as "
            "`pretrained`, or use efficientnet_lite0 with 'package', which needs no internet"
        ) from error


def _interpolation(name: str) -> Literal["bilinear", "bicubic"]:
    return cast(Literal["bilinear", "bicubic"], name if name in ("bilinear", "bicubic") else "bilinear")
