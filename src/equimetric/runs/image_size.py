"""How large the images of a run are: as its backbone expects them, unless the configuration says otherwise."""

from __future__ import annotations

import statistics
import warnings
from typing import Any, TypeVar

from equimetric.backbones import find_input_size
from equimetric.data import Dataset, ImageFiles, Transform, View, transform
from equimetric.data.registry import describe_dataset, input_size_default
from equimetric.errors import EquimetricWarning
from equimetric.runs.configuration import Conditions, DataConfig, ModelConfig

__all__ = ["fit_images", "keep_in_files", "warn_if_enlarged"]

ConditionsLike = TypeVar("ConditionsLike", bound=Conditions)

A_LITTLE = 0.75
"""Images of at least this fraction of the expected size count as large enough."""
FILES_MEASURED = 32


def fit_images(config: ConditionsLike) -> ConditionsLike:
    """The configuration with `data.options.size` chosen for the backbone, where the data set has it and none is given.

    Copies of images are stored at least as large as the backbone's input; a smaller input leaves the default. Larger
    images stay in their files unless `in_memory` is given, and so do images that a transform crops by views of its
    own. A configuration that has been fitted stays as it is, so its key is that of the same sizes written out.
    """
    data = config.data
    default = input_size_default(data.name)
    if default is None or "size" in data.options:
        return config
    changed = keep_in_files(data)
    sides = [resized_side(view) for view in views_of(transform(data.transform))]
    if not sides:
        size = find_input_size(config.model.backbone)
        changed = with_options(changed, size=size) if size > default else data
    elif data.options.get("in_memory") and max(sides) > default:
        changed = with_options(changed, size=max(sides))
    return config if changed == data else config.model_copy(update={"data": changed})


def keep_in_files(data: DataConfig) -> DataConfig:
    """The data with images in their files, where the data set has the choice and the options do not make it."""
    optional = "in_memory" in describe_dataset(data.name).options
    if not optional or "size" in data.options or "in_memory" in data.options:
        return data
    return with_options(data, in_memory=False)


def with_options(data: DataConfig, **options: Any) -> DataConfig:
    """The data with further options of the data set."""
    return data.model_copy(update={"options": {**data.options, **options}})


def views_of(chosen: Transform) -> list[View]:
    """The views of a transform; none where images are used as they are stored."""
    return [view for view in (chosen.train, chosen.test) if view is not None]


def resized_side(view: View) -> int:
    """The side to which a view resizes images, before it crops them."""
    return view.size if view.resize is None else view.resize.side


def warn_if_enlarged(dataset: Dataset, data: DataConfig, model: ModelConfig) -> None:
    """Warn where images have far fewer pixels than the network is given or its pretrained weights expect."""
    images = dataset.images
    if len(images.shape) != 4:
        return
    view = transform(data.transform).test
    pretrained = model.pretrained is not None
    if view is None and (not pretrained or "size" not in describe_dataset(data.name).options):
        return
    needed = find_input_size(model.backbone) if view is None else resized_side(view)
    if (view is None or not isinstance(images, ImageFiles)) and dataset.size < A_LITTLE * needed:
        expected = f"the weights of {model.backbone} expect {needed}"
        enlarged = f"the transform {data.transform!r} enlarges them to {needed}"
        say(
            f"the images of {dataset.name!r} are stored with {dataset.size} pixels on each side and "
            f"{expected if view is None else enlarged}; {advice(data, needed)}"
        )
    elif pretrained and isinstance(images, ImageFiles) and (found := median_side(images)) < A_LITTLE * needed:
        say(
            f"the image files of {dataset.name!r} have about {found:.0f} pixels on their shorter side and are enlarged "
            f"to {needed}; give larger originals, or train a network for small images such as small_cnn"
        )


def advice(data: DataConfig, needed: int) -> str:
    """What to set so that images are stored larger."""
    if "size" not in describe_dataset(data.name).options:
        return "store larger images, or choose a backbone and a transform for small ones"
    if "size" in data.options:
        return f"set data.options.size = {needed}, or leave it out"
    return f"set data.options.size = {needed}"


def median_side(images: ImageFiles) -> float:
    """The median shorter side of some of the files, by their headers, inside their bounding boxes."""
    step = max(1, len(images) // FILES_MEASURED)
    return statistics.median(min(images.store.size(int(number))) for number in images.numbers[::step])


def say(message: str) -> None:
    """Warn once."""
    warnings.warn(message, EquimetricWarning, stacklevel=4)
