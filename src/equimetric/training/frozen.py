"""Training a head on features that are computed once: seconds instead of hours where the trunk stays as it is."""

import contextlib
import errno
import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from equimetric.backbones import Backbone, EmbeddingNetwork, InputConvention
from equimetric.data import Dataset, cache_directory
from equimetric.errors import EquimetricError
from equimetric.training.processes import Processes

__all__ = ["FeatureVectors", "cached_features", "with_features"]

BLOCK = {"cpu": 16, "cuda": 256}
"""Images in the backbone at a time; on a processor more would fall out of its caches."""


class FeatureVectors(Backbone):
    """Stands in for a backbone where feature vectors are given in place of images."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features
        self.convention = InputConvention(1, 1, mean=(0.0,) * features, std=(1.0,) * features)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, features) as they are."""
        return vectors


def with_features(network: EmbeddingNetwork, dataset: Dataset, processes: Processes) -> Dataset:
    """The data set's features in place of its images, for a network whose backbone is taken out here."""
    features = cached_features(network.backbone, dataset, processes)
    network.backbone = FeatureVectors(network.backbone.features)
    return replace(dataset, images=features)


def cached_features(backbone: Backbone, dataset: Dataset, processes: Processes) -> Tensor:
    """(N, features) float32 of all images of a data set, memory-mapped from a file that is written once.

    The file's name is a fingerprint of images, weights and input convention. They are computed in evaluation mode.
    """
    file = cache_directory() / "features" / f"{features_fingerprint(backbone, dataset)}.npy"
    if processes.writes and not is_complete(file, (len(dataset), backbone.features)):
        try:
            write_features(file, backbone, dataset)
        except OSError as error:
            why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
            raise EquimetricError(
                f"the features of {dataset.name!r} cannot be written to {str(file.parent)!r}: {why}; "
                "choose another place with the environment variable EQUIMETRIC_CACHE"
            ) from error
    processes.wait()
    # Copy on write: torch asks for memory that it could write to, and the file stays as it is.
    return torch.from_numpy(np.load(file, mmap_mode="c"))


def features_fingerprint(backbone: Backbone, dataset: Dataset) -> str:
    """Of everything that features follow from: the images, the backbone with its weights, and its input convention."""
    digest = hashlib.sha256(f"{dataset.fingerprint} {backbone.convention}\n{backbone}\n".encode())
    for name, tensor in backbone.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]


def is_complete(file: Path, shape: tuple[int, int]) -> bool:
    """Whether the file holds an array of this shape."""
    try:
        return bool(np.load(file, mmap_mode="r").shape == shape)
    except (OSError, ValueError):
        return False


def write_features(file: Path, backbone: Backbone, dataset: Dataset) -> None:
    """Compute all features, a block at a time, into a file that appears under its name only when it is complete."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.stem}.", delete=False) as temporary:
        unfinished = Path(temporary.name)
    was_training = backbone.training
    parameter = next(backbone.parameters())
    block = BLOCK[parameter.device.type]
    backbone.eval()
    try:
        shape = (len(dataset), backbone.features)
        features = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.float32, shape=shape)
        with torch.inference_mode():
            for start in range(0, len(dataset), block):
                images = backbone.convention.apply(dataset.images[start : start + block].to(parameter.device))
                features[start : start + block] = backbone(images.to(parameter.dtype)).float().cpu().numpy()
        features.flush()
        unfinished.chmod(0o644)
        unfinished.replace(file)
    finally:
        backbone.train(was_training)
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
