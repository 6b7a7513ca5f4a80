"""Size of a run's images: the input size of its backbone, unless the configuration sets another."""

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

MIN_SIZE_RATIO = 0.75
"""Images of at least this fraction of the expected size count as large enough."""
MAX_SAMPLED_FILES = 32


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
    """The data with images in their files, where the data set would load them by default."""
    in_memory = describe_dataset(data.name).options.get("in_memory", False)
    if not in_memory or "size" in data.options or "in_memory" in data.options:
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
    if len(dataset.images.shape) != 4:
        return
    message = explain_small_copies(dataset, data, model) or explain_small_files(dataset, data, model)
    if message:
        warnings.warn(message, EquimetricWarning, stacklevel=3)


def explain_small_copies(dataset: Dataset, data: DataConfig, model: ModelConfig) -> str:
    """The problem with images that were stored too small; '' where there is none."""
    chosen = transform(data.transform)
    view, can_change = chosen.test, "size" in describe_dataset(data.name).options
    if view is not None and (chosen.enlarges or isinstance(dataset.images, ImageFiles)):
        return ""
    if view is None and model.pretrained is None:
        return ""
    needed = needed_side(view, model)
    # Without a larger copy there is only the transform 'enlarge', which suits the backbones of photographs.
    enlarged = transform("enlarge").test
    if view is None and not can_change and enlarged is not None and needed < resized_side(enlarged):
        return ""
    if dataset.size >= MIN_SIZE_RATIO * needed:
        return ""
    reason = f"the weights of {model.backbone} expect {needed}"
    if view is not None:
        reason = f"the transform {data.transform!r} enlarges them to {needed}"
    advice = "store larger images, or choose a backbone and a transform for small ones"
    if view is None and not can_change:
        advice = 'set data.transform = "enlarge"'
    if can_change:
        advice = f"set data.options.size = {needed}" + (", or leave it out" if "size" in data.options else "")
    return f"the images of {dataset.name!r} are stored with {dataset.size} pixels on each side and {reason}; {advice}"


def explain_small_files(dataset: Dataset, data: DataConfig, model: ModelConfig) -> str:
    """The problem with image files that are too small; '' where there is none."""
    if model.pretrained is None or not isinstance(dataset.images, ImageFiles):
        return ""
    needed, actual = needed_side(transform(data.transform).test, model), median_side(dataset.images)
    if actual >= MIN_SIZE_RATIO * needed:
        return ""
    return (
        f"the image files of {dataset.name!r} have about {actual:.0f} pixels on their shorter side and are enlarged to "
        f"{needed}; give larger originals where there are any"
    )


def needed_side(view: View | None, model: ModelConfig) -> int:
    """Pixels that the test view resizes to, or that the backbone is made for."""
    return find_input_size(model.backbone) if view is None else resized_side(view)


def median_side(images: ImageFiles) -> float:
    """The median shorter side of some of the files, by their headers, inside their bounding boxes."""
    step = max(1, len(images) // MAX_SAMPLED_FILES)
    return statistics.median(min(images.store.size(int(index))) for index in images.file_indices[::step])
