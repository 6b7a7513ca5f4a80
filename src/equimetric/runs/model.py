"""A trained model from its folder, without the training loop."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load as parse_safetensors
from torch import Tensor

from equimetric.checksums import Checksum
from equimetric.data import ImageFiles, Images, transform, view_images
from equimetric.errors import DamagedFileError, EquimetricError, EquimetricWarning, not_a_tensor
from equimetric.learners import Learner
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.embedding import embed_images
from equimetric.runs.folder import ADVICE, FROZEN_WEIGHTS, WEIGHTS, RunFolder, changed_parts, missing_parts
from equimetric.runs.result import DataShape, RunResult
from equimetric.threads import use_threads

__all__ = ["TrainedModel", "load_all_weights", "load_run", "load_weights", "parse_weights"]


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A finished run: its learner with the best weights, its folder and its result."""

    config: RunConfig
    learner: Learner
    folder: Path
    result: RunResult

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics of the test classes; empty for a final model that was trained on all classes."""
        return self.result.metrics

    @property
    def validation(self) -> Mapping[str, float]:
        """Best metrics of the validation classes."""
        return self.result.validation

    @property
    def best_step(self) -> int:
        """The step of the kept weights."""
        return self.result.best_step

    def embed(self, images: Images, *, modality: str | None = None) -> Tensor:
        """(N, C, H, W) uint8, in memory or in files, or (N, F) features → (N, D) embeddings.

        Images pass the run's test view first, exactly as its test images did. With a `modality` of a learner of two
        encoders, such as "text", they are of that one alone.
        """
        if not isinstance(images, Tensor | ImageFiles):
            raise not_a_tensor(images, "images")
        view = transform(self.config.data.transform).test
        if view is not None and len(images.shape) == 4:
            images = view_images(images, view)
        with use_threads(self.config.training.threads):
            return embed_images(self.learner, images, modality=modality)

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {value:.4f}" for name, value in self.metrics.items()) or "no class left"
        return f"TrainedModel({self.config.method!r}, seed {self.config.seed}, test: {metrics}, {str(self.folder)!r})"


def load_run(folder: str | Path) -> TrainedModel:
    """The model of a finished run; needs its folder alone, not the data it was trained on."""
    run = RunFolder(Path(folder))
    result = run.result()
    if result is None or result.status != "done" or result.data is None:
        raise EquimetricError(f"{str(folder)!r} holds no finished training run; run it to its end first")
    config = run.config()
    changed = changed_parts(run.environment() or {}, config)
    if changed:
        warnings.warn(f"{str(folder)!r} was trained with {changed}", EquimetricWarning, stacklevel=2)
    learner = build_stored_learner(run, config, result.data)
    weights = load_all_weights(run)
    if config.training.precision == "float64":
        learner.to(torch.float64)
    if config.training.channels_last:
        learner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        learner.load_state_dict(weights)
    except RuntimeError as error:
        raise EquimetricError(f"the weights in {str(folder)!r} do not fit its configuration: {error}") from None
    learner.eval()
    return TrainedModel(config, learner, run.path, result)


def build_stored_learner(run: RunFolder, config: RunConfig, shape: DataShape) -> Learner:
    """The learner of a finished run; an error says where it misses a plug-in, which no folder of a run loads."""
    try:
        return build_learner(config, shape, pretrained=False)
    except EquimetricError as error:
        missing = missing_parts(run.environment() or {}, config)
        raise EquimetricError(f"the run in {str(run.path)!r}: {error}; {missing}") if missing else error from None


def load_all_weights(run: RunFolder) -> dict[str, Tensor]:
    """All tensors of a finished run, those of a frozen backbone included."""
    weights = load_weights(run.path / WEIGHTS, run.expected_checksum(WEIGHTS))
    frozen = run.expected_checksum(FROZEN_WEIGHTS)
    return weights if frozen is None else weights | load_weights(run.path / FROZEN_WEIGHTS, frozen)


def load_weights(path: Path, expected: Checksum | None = None) -> dict[str, Tensor]:
    """Tensors of a file of a run's folder, checked where its checksum is known."""
    if not path.exists():
        raise EquimetricError(f"there are no weights at {str(path)!r}; has the run finished?")
    return parse_weights(path, RunFolder(path.parent).read(path.name, expected))


def parse_weights(path: Path, content: bytes) -> dict[str, Tensor]:
    """Tensors from the content of a safetensors file; `path` is for the message."""
    try:
        return parse_safetensors(content)
    except Exception as error:
        raise DamagedFileError(f"{path} is damaged ({error})", ADVICE) from None
