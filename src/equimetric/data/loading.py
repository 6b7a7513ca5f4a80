"""Batches of images, decoded ahead by threads while the last one is being computed with."""

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
from equimetric.data.views import Draws, View, draws_of_batch, view_tensor
from equimetric.errors import EquimetricError

__all__ = ["Loader"]


class Loader:
    """Iterates over `batches` of indices and gives (indices, uint8 images (B, C, S, S)) in the same order.

    Images from files lie in memory as PyTorch's channels-last format, the way they were decoded.

    view     how images are seen, perhaps random; None: as `images[indices]` gives them
    seed     how the image at position p of batch t is cropped follows from (seed, t, p), whatever the number of workers
    first    the number t of the first batch, for a run that is resumed
    workers  decoding threads; by default one per processor core
    ahead    batches decoded in advance; with 0 a batch of indices is not asked for before its images are

    With `ahead` > 0 indices are taken from `batches` before they are needed: batches that depend on what is learned
    must be given in stretches within which they do not change.
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
        ahead: int = 2,
    ) -> None:
        if workers is not None and workers < 1:
            raise EquimetricError(f"workers must be at least 1, not {workers}")
        if ahead < 0:
            raise EquimetricError(f"ahead must be 0 or more batches, not {ahead}")
        if view is not None and len(images.shape) != 4:
            raise EquimetricError("feature vectors cannot be seen through a view; load them with view=None")
        self.images = images.viewed(view) if isinstance(images, ImageFiles) and view is not None else images
        self.batches = batches
        self.view = view
        self.seed = seed
        self.first = first
        self.workers = workers or available_cores()
        self.ahead = ahead

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        look = self._look()
        numbered = zip(count(self.first), self.batches, strict=False)
        if look is None:
            images = self.images
            for _, indices in numbered:
                # Selecting whole images is ten times faster than indexing by a tensor.
                chosen = images.index_select(0, indices) if isinstance(images, Tensor) else images[indices]
                yield indices, chosen
            return
        pool = ThreadPoolExecutor(self.workers)
        begun: deque[_Begun] = deque()
        try:
            while True:
                begun.extend(self._begin(pool, look, *batch) for batch in islice(numbered, self.ahead + 1 - len(begun)))
                if not begun:
                    return
                yield begun.popleft().finish()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _look(self) -> Callable[[int, Draws], NDArray[np.uint8]] | None:
        """One image by its index, or None where a batch is one cheap indexing."""
        images, view = self.images, self.view
        if isinstance(images, ImageFiles):
            return images.look
        if view is None:
            return None
        return lambda index, draws: view_tensor(images[index], view, draws)

    def _begin(
        self, pool: ThreadPoolExecutor, look: Callable[[int, Draws], NDArray[np.uint8]], step: int, indices: Tensor
    ) -> "_Begun":
        size = self.images.shape[2] if self.view is None else self.view.size
        batch = np.empty((len(indices), size, size, self.images.shape[1]), dtype=np.uint8)
        chosen, draws = indices.tolist(), draws_of_batch(self.seed, step, len(indices))

        def fill(position: int) -> None:
            batch[position] = look(chosen[position], draws[position])

        return _Begun(indices, channels_first(batch), [pool.submit(fill, position) for position in range(len(chosen))])


@dataclass(frozen=True, eq=False)
class _Begun:
    """A batch whose images are on their way."""

    indices: Tensor
    images: Tensor
    tasks: list[Future[None]]

    def finish(self) -> tuple[Tensor, Tensor]:
        for task in self.tasks:
            task.result()
        return self.indices, self.images
