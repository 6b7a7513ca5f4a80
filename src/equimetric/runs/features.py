"""Features of a frozen backbone, computed once and kept on disk."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.backbones import Backbone
from equimetric.data import Dataset, Images, Loader, cache_directory
from equimetric.data.dataset import images_fingerprint
from equimetric.data.decoding import available_cores
from equimetric.errors import StorageError
from equimetric.files import explain_write_error
from equimetric.processes import SINGLE, Processes
from equimetric.progress import print_status, show_progress
from equimetric.runs.feature_file import PIECE, FeatureFile, OpenFeatures
from equimetric.threads import use_threads

__all__ = ["cached_features", "estimate_seconds"]

BLOCK = {"cpu": 16, "cuda": 256}
"""Images in the backbone at a time, a divisor of `PIECE`; on a CPU more would fall out of its caches."""

TRIES_BEFORE_MESSAGE = 5
"""Attempts to lock, several a second: other processes lock the file for a moment to check it."""


def cached_features(backbone: Backbone, dataset: Dataset, processes: Processes = SINGLE) -> Tensor:
    """(N, F) float32 features of all images, in evaluation mode, memory-mapped from a file that is written once.

    The file's name is a hash of images, weights and input convention. Of several processes that want the same features
    the first computes them, on all cores, while the others wait; a killed one loses no more than a piece. The bits do
    not depend on the number of cores.
    """
    file = feature_file(backbone, dataset)
    with explain_write_errors(file, dataset.name):
        if not is_complete(file, dataset.name, quiet=not processes.is_main):
            complete_file(file, backbone, dataset, quiet=not processes.is_main)
        features = torch.from_numpy(file.map())
    processes.barrier()
    return features


def estimate_seconds(backbone: Backbone, dataset: Dataset) -> float:
    """Estimated time of `cached_features`, from a block of images on every core; 0 where the features exist."""
    if is_complete(feature_file(backbone, dataset), dataset.name, quiet=True):
        return 0.0
    block, rows = block_size(backbone), len(dataset)
    n_sampled = min(rows, block * available_cores())
    start_time = time.monotonic()
    for _ in compute_blocks(
        backbone, dataset.images, [range(start, min(start + block, n_sampled)) for start in range(0, n_sampled, block)]
    ):
        pass
    return (time.monotonic() - start_time) * rows / n_sampled


def feature_file(backbone: Backbone, dataset: Dataset) -> FeatureFile:
    """The file of the features of a data set."""
    fingerprint = features_fingerprint(backbone, dataset)
    path = cache_directory() / "features" / f"{fingerprint}.npy"
    return FeatureFile(path, len(dataset), backbone.num_features, fingerprint)


def features_fingerprint(backbone: Backbone, dataset: Dataset) -> str:
    """Hash of everything that determines features: images, backbone, weights, input convention."""
    # Not of labels and splits: runs on other classes of the same images share their features.
    images = images_fingerprint(dataset.images)
    digest = hashlib.sha256(f"{images} {backbone.convention}\n{backbone}\n".encode())
    for name, tensor in backbone.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]


@contextmanager
def explain_write_errors(file: FeatureFile, name: str) -> Iterator[None]:
    """Turn a failed write into one sentence."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"the features of {name!r} ({file.size / 1e6:,.1f} MB) cannot be written to {str(file.path.parent)!r}: "
            f"{explain_write_error(error)}; choose another place with the environment variable EQUIMETRIC_CACHE, or "
            "make room there and run the same command again"
        ) from error


class WaitingProgress:
    """Shows the progress of another process while this one waits for it."""

    def __init__(self, name: str, stack: ExitStack, *, quiet: bool) -> None:
        self.name = name
        self.stack = stack
        self.quiet = quiet
        self.tries = 0
        self.shown_rows = 0
        self.advance: Callable[[int], None] | None = None

    def __call__(self, opened: OpenFeatures) -> None:
        """Report once which process it waits for, and show its progress; a short wait is not reported."""
        self.tries += 1
        if self.quiet or self.tries < TRIES_BEFORE_MESSAGE:
            return
        file, rows = opened.file, opened.file.count_rows(opened.find_written())
        if self.advance is None:
            process = opened.writer()
            holder = "another process" if process is None else f"process {process}"
            print_status(f"The features of {self.name!r} are being computed by {holder}; waiting for them.")
            bar = show_progress(f"Waiting for the features of {self.name!r}", file.rows, completed=rows)
            self.advance, self.shown_rows = self.stack.enter_context(bar), rows
        self.advance(rows - self.shown_rows)
        self.shown_rows = rows


def is_complete(file: FeatureFile, name: str, *, quiet: bool) -> bool:
    """Whether all features exist and are undamaged; waits for a process that is computing them."""
    try:
        with ExitStack() as stack, file.lock(write=False, wait=WaitingProgress(name, stack, quiet=quiet)) as opened:
            return not opened.find_missing()
    except FileNotFoundError:
        return False


def complete_file(file: FeatureFile, backbone: Backbone, dataset: Dataset, *, quiet: bool) -> None:
    """Compute the missing features, unless another process was faster."""
    with ExitStack() as stack:
        wait = WaitingProgress(dataset.name, stack, quiet=quiet)
        while True:
            file.create()
            with file.lock(write=True, wait=wait) as opened:
                if opened.is_empty() or opened.has_layout():
                    stack.close()
                    compute_missing(opened, backbone, dataset, quiet=quiet)
                    return
                # Another process may have mapped it into memory, where it must not shrink: it is replaced.
                if not quiet:
                    print_status(f"{file.path} is damaged or of an older version; its features are computed again.")
                file.path.unlink()


def compute_missing(opened: OpenFeatures, backbone: Backbone, dataset: Dataset, *, quiet: bool) -> None:
    """Reserve the space of a new file, and compute the missing or damaged pieces."""
    file = opened.file
    if opened.is_empty():
        try:
            opened.reserve()
        except BaseException:
            file.path.unlink()
            raise
    missing = opened.find_missing()
    damaged = set(missing) & set(opened.find_written())
    if damaged and not quiet:
        print_status(f"{len(damaged)} of {file.pieces} pieces of {file.path} are damaged; they are computed again.")
    if missing:
        opened.claim()
        write_features(opened, backbone, dataset, missing, quiet=quiet)


def write_features(
    opened: OpenFeatures, backbone: Backbone, dataset: Dataset, missing: list[int], *, quiet: bool = False
) -> None:
    """Compute the missing pieces and write each when it is complete."""
    file = opened.file
    block = block_size(backbone)
    blocks_of = {
        index: [range(start, min(start + block, rows.stop)) for start in rows[::block]]
        for index, rows in ((index, file.piece(index)) for index in missing)
    }
    completed = file.rows - file.count_rows(missing)
    with (
        show_progress(f"Features of {dataset.name!r}", file.rows, completed=completed, quiet=quiet) as advance,
        closing(compute_blocks(backbone, dataset.images, list(chain(*blocks_of.values())))) as computed,
    ):
        for index, blocks in blocks_of.items():
            features = []
            for rows in blocks:
                features.append(next(computed))
                advance(len(rows))
            opened.write(index, np.concatenate(features))


def block_size(backbone: Backbone) -> int:
    """Images in the backbone at a time, on its device."""
    return BLOCK.get(device_of(backbone).type, PIECE)


def device_of(backbone: Backbone) -> torch.device:
    """The device of the backbone's parameters."""
    parameter = next(backbone.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def compute_blocks(backbone: Backbone, images: Images, blocks: Sequence[range]) -> Generator[NDArray[Any]]:
    """The features of every block of rows, in order.

    On a CPU every core computes blocks of its own in a single thread: several threads in one block would be slower,
    and their number would change the last digits.
    """
    device = device_of(backbone)
    workers = available_cores() if device.type == "cpu" else 1
    indices = (torch.arange(rows.start, rows.stop) for rows in blocks)
    dtype = next((parameter.dtype for parameter in backbone.parameters()), torch.float32)

    @torch.inference_mode()
    def compute(pixels: Tensor) -> NDArray[Any]:
        prepared = backbone.convention.apply(pixels.to(device)).to(dtype)
        features: NDArray[Any] = backbone(prepared).float().cpu().numpy()
        return features

    was_training = backbone.training
    backbone.eval()
    # A new thread takes the number of threads of the machine unless it is set.
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        with use_threads(1):
            pending: deque[Future[NDArray[Any]]] = deque()
            for _, pixels in Loader(images, indices, prefetch=workers):
                pending.append(pool.submit(compute, pixels))
                if len(pending) > workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        backbone.train(was_training)
