"""Batches of images, decoded ahead in threads while the model computes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from equimetric.data.dataset import Images
from equimetric.data.decoding import available_cores
from equimetric.data.image_files import ImageFiles, channels_first
from equimetric.data.views import RandomStream, View, batch_streams, view_tensor
from equimetric.errors import EquimetricError

__all__ = ["Loader"]


class Loader:
    """Iterates over `batches` of indices and yields (indices, uint8 images (B, C, S, S)) in the same order.

    Images from files are in PyTorch's channels-last format, as they were decoded.

    view      applied to every image, may be random; None: `images[indices]` unchanged
    seed      the crop of the image at position p of batch t follows from (seed, t, p), whatever the number of workers
    first     the number t of the first batch, for a resumed run
    workers   decoding threads; by default one per processor core
    prefetch  batches decoded in advance; with 0 the next indices are drawn only when their images are requested

    With `prefetch` > 0 indices are taken from `batches` before they are needed: batches that depend on the training
    must come in stretches within which they do not change.
    """

    def __init__(
        self,
        images: Images,
        batches: Iterable[Tensor],
        *,
        view: View | None = None,
        seed: int = 0,
        first: int = 0,
        workers: int | None = None,
        prefetch: int = 2,
    ) -> None:
        if workers is not None and workers < 1:
            raise EquimetricError(f"workers must be at least 1, not {workers}")
        if prefetch < 0:
            raise EquimetricError(f"prefetch must be 0 or more batches, not {prefetch}")
        if view is not None and len(images.shape) != 4:
            raise EquimetricError("feature vectors take no view; load them with view=None")
        self.images = images.with_view(view) if isinstance(images, ImageFiles) and view is not None else images
        self.batches = batches
        self.view = view
        self.seed = seed
        self.first = first
        self.workers = workers or available_cores()
        self.prefetch = prefetch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        load = self._image_loader()
        numbered = zip(count(self.first), self.batches, strict=False)
        if load is None:
            images = self.images
            for _, indices in numbered:
                # Selecting whole images is ten times faster than indexing by a tensor.
                chosen = images.index_select(0, indices) if isinstance(images, Tensor) else images[indices]
                yield indices, chosen
            return
        pool = ThreadPoolExecutor(self.workers)
        pending: deque[_PendingBatch] = deque()
        try:
            while True:
                pending.extend(
                    self._begin(pool, load, *batch) for batch in islice(numbered, self.prefetch + 1 - len(pending))
                )
                if not pending:
                    return
                yield pending.popleft().finish()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _image_loader(self) -> Callable[[int, RandomStream], NDArray[np.uint8]] | None:
        """A function that loads one image by its index, or None where a batch is one cheap indexing."""
        images, view = self.images, self.view
        if isinstance(images, ImageFiles):
            return images.load
        if view is None:
            return None
        return lambda index, rng: view_tensor(images[index], view, rng)

    def _begin(
        self,
        pool: ThreadPoolExecutor,
        load: Callable[[int, RandomStream], NDArray[np.uint8]],
        step: int,
        indices: Tensor,
    ) -> "_PendingBatch":
        size = self.images.shape[2] if self.view is None else self.view.size
        batch = np.empty((len(indices), size, size, self.images.shape[1]), dtype=np.uint8)
        chosen, rng = indices.tolist(), batch_streams(self.seed, step, len(indices))

        def fill(position: int) -> None:
            batch[position] = load(chosen[position], rng[position])

        return _PendingBatch(
            indices, channels_first(batch), [pool.submit(fill, position) for position in range(len(chosen))]
        )


@dataclass(frozen=True, eq=False)
class _PendingBatch:
    """A batch whose images are being decoded."""

    indices: Tensor
    images: Tensor
    tasks: list[Future[None]]

    def finish(self) -> tuple[Tensor, Tensor]:
        for task in self.tasks:
            task.result()
        return self.indices, self.images
