"""Checks before features are computed or anything trains: parts, metrics, batches, weights, head."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from equimetric.backbones import EmbeddingNetwork, require_directions
from equimetric.batches import BATCHES
from equimetric.batches.base import ClassBatches
from equimetric.data import sample_weights, take_images, transform
from equimetric.data.attributes import attribute_ids, class_attribute_ids
from equimetric.data.transforms import identity
from equimetric.errors import EquimetricError, EquimetricWarning
from equimetric.evaluation import Cohort, evaluate
from equimetric.learners import Learner
from equimetric.learners.modules.networks import feature_dim
from equimetric.objectives import Objective
from equimetric.runs.cohorts import cohort_rows
from equimetric.runs.configuration import Conditions, RunConfig
from equimetric.runs.cross_modal import require_paired
from equimetric.runs.data import RunData
from equimetric.runs.embedding import embed_images
from equimetric.runs.regimes import fit_to_data
from equimetric.training.delayed_starts import warn_of_delayed_starts
from equimetric.training.gradients import require_no_batch_statistics
from equimetric.training.optimizers import build_optimizer
from equimetric.training.sampling import TaskBatches

__all__ = ["describe_parts", "require_conditions", "require_trainable", "warn_if_not_augmented"]

TRIAL_ROWS = 1000
"""Approximate number of rows that metrics are tried with."""

TRIAL_ENTRIES = 5 * 10**7
"""Largest number of values in the embeddings that they are tried with: 200 MB."""


def require_conditions(config: Conditions, data: RunData) -> None:
    """Raise an error for parts of the data, or metrics, with which no method can be evaluated."""
    for part in ("train", *evaluated_parts(data)):
        require_part(data, part)
    if config.evaluation.parents is not None:
        class_attribute_ids(data.dataset, config.evaluation.parents, "evaluation.parents")
    require_metrics(config, data, fit_to_data(config, data.shape).model.dim or 1)


def evaluated_parts(data: RunData) -> list[str]:
    """The parts that have images to evaluate."""
    return [part for part in ("validation", "test") if len(data.rows(part))]


def require_metrics(config: Conditions, data: RunData, dim: int) -> None:
    """Raise an error for metrics that cannot be computed for embeddings of a dimension."""
    for part in evaluated_parts(data):
        try:
            try_metrics(config, data, part, dim)
        except EquimetricError as error:
            names = ", ".join(config.evaluation.names())
            raise EquimetricError(
                f"evaluation.metrics = {names} cannot be computed for the {part} classes: {error} "
                f"(or leave it out of evaluation.metrics; {describe_parts(data)})"
            ) from None


def require_trainable(config: RunConfig, data: RunData, learner: Learner) -> None:
    """Raise an error where the learner's head, optimiser or batches cannot be made from the data."""
    if config.evaluation.across is not None:
        require_paired(learner)
    if config.model.starts_by_pca:
        require_principal_directions(data, learner)
    if not is_compiled(learner):
        dim = embed_images(learner, take_images(data.eval_data.images, data.split.train[:1])).shape[1]
        if dim != fit_to_data(config, data.shape).model.dim:
            # Baselines have as many dimensions as pixels or features.
            require_metrics(config, data, dim)
    if not learner.trains:
        return
    build_optimizer(learner, config.optimizer)
    require_batches(config, data, learner)
    warn_of_delayed_starts(config, learner)
    if config.data.weights is not None:
        require_weights(config, data, learner, config.data.weights)
    if config.batch.at_once is not None:
        require_no_batch_statistics(learner, config.training.steps - 1)
        learner.before_step(0)


def is_compiled(learner: Learner) -> bool:
    """Whether embedding a first image would trigger compilation, which takes minutes."""
    return any(getattr(module, "_compiled_call_impl", None) is not None for module in learner.modules())


def warn_if_not_augmented(config: Conditions) -> None:
    """Warn of an augmentation that was asked for and cannot be applied, because features are computed once."""
    chosen = config.data.transform
    if not config.model.frozen or "transform" not in config.data.model_fields_set:
        return
    # A test view still decides which pixels the features are of.
    if transform(chosen).augment is not identity and transform(chosen).test is None:
        warnings.warn(
            f"data.transform = {chosen!r} changes nothing: with model.frozen = true the features of every image are "
            "computed once, without augmentation; leave one of them out",
            EquimetricWarning,
            stacklevel=3,
        )


def require_part(data: RunData, part: str) -> None:
    """Raise an error for a part with fewer than two classes, or without a pair to find."""
    labels = data.dataset.labels[data.rows(part)]
    classes, counts = torch.unique(labels, return_counts=True)
    if len(classes) < 2:
        needed = "needs at least two classes"
    elif int(counts.max()) < 2:
        needed = "has one image per class and needs a second one of some"
    else:
        return
    raise EquimetricError(
        f"the {part} part {needed}: change data.split or the split of the data set, or add images "
        f"({describe_parts(data)})"
    )


def require_batches(config: RunConfig, data: RunData, learner: Learner) -> None:
    """Raise an error where the configured batches cannot be drawn from the training classes."""
    train_data = data.train_data
    batch, counts = config.batch, torch.bincount(train_data.labels)
    try:
        TaskBatches(config, learner, train_data.labels, partial(attribute_ids, train_data))
    except EquimetricError as error:
        remedy = f"batch.classes = {len(counts)}; " if (batch.classes or 0) > len(counts) else ""
        raise EquimetricError(f"{error} ({remedy}{describe_parts(data)})") from None
    if issubclass(BATCHES.find(batch.kind), ClassBatches) and batch.samples > int(counts.max()):
        raise EquimetricError(
            f"{batch.samples} samples of a class cannot be drawn without repetition: no training class has more than "
            f"{int(counts.max())} images; set batch.samples = {int(counts.max())} or fewer ({describe_parts(data)})"
        )


def require_weights(config: RunConfig, data: RunData, learner: Learner, name: str) -> None:
    """Raise an error where training cannot count samples by the weights of the data."""
    option = f"data.weights = {name!r}"
    if not learner.weighs_samples:
        raise EquimetricError(f"{option}: learner {config.learner.name!r} takes no weights; leave one of them out")
    for part in learner.modules():
        if isinstance(part, Objective) and part.no_weights_reason is not None:
            raise EquimetricError(
                f"{option}: {part.name!r} takes no weights: {part.no_weights_reason}; leave one of them out"
            )
    if not sample_weights(data.dataset, name)[data.split.train].any():
        raise EquimetricError(f"{option}: no training image has a weight above 0; give some a larger one")


def require_principal_directions(data: RunData, learner: Learner) -> None:
    """Raise an error where the training images have too few principal directions for a head that starts at them."""
    for network in learner.modules():
        if not isinstance(network, EmbeddingNetwork) or isinstance(network.head, torch.nn.Identity):
            continue
        features = feature_dim(network)
        try:
            require_directions(network.head, data.shape.images, features)
        except EquimetricError as error:
            max_dim = max(min(data.shape.images - 1, features), 1)
            raise EquimetricError(
                f"model.head_init = 'pca': {error} (model.dim = {max_dim}, or model.head_init = 'random'; "
                f"{describe_parts(data)})"
            ) from None


def try_metrics(config: Conditions, data: RunData, part: str, dim: int) -> None:
    """Compute the configured metrics for random embeddings of a dimension with the labels of a part.

    Fewer rows are tried where the embeddings would take too much memory; none if the part has at least `dim` rows.
    """
    evaluation, split = config.evaluation, data.split
    generator = torch.Generator().manual_seed(0)
    max_rows = max(TRIAL_ROWS, 2 * dim)
    if dim * min(max_rows, len(data.rows(part))) > TRIAL_ENTRIES:
        if len(data.rows(part)) >= dim:
            return
        max_rows = max(2, TRIAL_ENTRIES // dim)

    def draw(rows: Tensor) -> tuple[Tensor, Tensor]:
        labels = take_classes(data.dataset.labels[rows], max_rows)
        return torch.randn(len(labels), dim, generator=generator), labels

    row_sets = [data.rows(part)]
    if part == "test" and split.query is not None and split.gallery is not None:
        row_sets = [split.query, split.gallery]
    cohort = None
    if evaluation.cohort is not None and part == "test":
        cohort = Cohort(draw(cohort_rows(data, evaluation.cohort.part))[0], nearest=evaluation.cohort.nearest)
    arrays = list(chain(*map(draw, row_sets)))
    parents = {}
    if evaluation.parents is not None:
        of_class = class_attribute_ids(data.dataset, evaluation.parents, "evaluation.parents")
        names = ("parents", "gallery_parents")
        parents = {name: of_class[labels] for name, labels in zip(names, arrays[1::2], strict=False)}
    options: dict[str, Any] = {"geometry": evaluation.compared_by(), "cohort": cohort, **parents}
    evaluate(*arrays, metrics=evaluation.names(), **options)


def take_classes(labels: Tensor, n: int) -> Tensor:
    """The labels of the first whole classes that make up `n` rows; huge classes are cut."""
    classes, counts = torch.unique(labels, return_counts=True)
    counts = counts.clamp(max=max(2, n // 2))
    keep = counts.cumsum(0) - counts < n
    repeated: Tensor = classes[keep].repeat_interleave(counts[keep])
    return repeated


def describe_parts(data: RunData) -> str:
    """'train: 24 classes, 216 images; validation: 6 classes, 54 images; test: 30 classes, 270 images'."""
    sizes = {
        part: (len(torch.unique(data.dataset.labels[rows])), len(rows)) for part, rows in data.split.parts().items()
    }
    return "; ".join(f"{part}: {classes:,} classes, {images:,} images" for part, (classes, images) in sizes.items())
