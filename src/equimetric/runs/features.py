"""Features of a frozen backbone, computed once and kept on disk."""

import contextlib
import errno
import hashlib
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from equimetric.backbones import Backbone
from equimetric.data import Dataset, cache_directory
from equimetric.errors import EquimetricError
from equimetric.processes import SINGLE, Processes

__all__ = ["cached_features"]

BLOCK = {"cpu": 16, "cuda": 256}
"""Images in the backbone at a time; on a CPU more would fall out of its caches."""


def cached_features(backbone: Backbone, dataset: Dataset, processes: Processes = SINGLE) -> Tensor:
    """(N, F) float32 features of all images, in evaluation mode, memory-mapped from a file that is written once.

    The file's name is a hash of images, weights and input convention.
    """
    file = cache_directory() / "features" / f"{features_fingerprint(backbone, dataset)}.npy"
    if processes.is_main and not is_complete(file, (len(dataset), backbone.features)):
        try:
            write_features(file, backbone, dataset)
        except OSError as error:
            why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
            raise EquimetricError(
                f"the features of {dataset.name!r} cannot be written to {str(file.parent)!r}: {why}; "
                "choose another place with the environment variable EQUIMETRIC_CACHE"
            ) from error
    processes.barrier()
    # Copy on write: torch asks for memory that it could write to, and the file stays as it is.
    return torch.from_numpy(np.load(file, mmap_mode="c"))


def features_fingerprint(backbone: Backbone, dataset: Dataset) -> str:
    """Hash of everything that determines features: images, backbone, weights, input convention."""
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
