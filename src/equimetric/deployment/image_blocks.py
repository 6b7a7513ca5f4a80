"""Outputs of image files, decoded in threads while the network computes; files that cannot be read are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from equimetric.data.decoding import map_in_threads
from equimetric.deployment.embedder import Embedder
from equimetric.runs.embedding import images_per_block

__all__ = ["FileOutputs", "embed_readable"]

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class FileOutputs:
    """The outputs of a network for image files.

    reasons   for each file, why it cannot be read; None where it can
    readable  (M,) indices of the readable files
    outputs   (M, …) float32 of these by name; empty where there are none
    """

    reasons: list[str | None]
    readable: NDArray[np.int64]
    outputs: dict[str, NDArray[np.float32]]


def embed_readable(model: Embedder, files: Sequence[Path], advance: Callable[[int], None]) -> FileOutputs:
    """The outputs of all files that can be read; `advance` is called with the number of files that are done."""
    step = images_per_block(model.preprocessing.size**2)
    blocks = [files[start : start + step] for start in range(0, len(files), step)]
    reasons: list[str | None] = []
    outputs: list[dict[str, Tensor]] = []
    # The next images are decoded while the network computes.
    for pixels, block_reasons in prefetch(lambda block: load_block(model, block), blocks):
        reasons += block_reasons
        if len(pixels):
            outputs.append(model.compute(pixels))
        advance(len(block_reasons))
    joined = {
        name: np.concatenate([block[name].numpy() for block in outputs]).astype(np.float32)
        for name in (outputs[0] if outputs else ())
    }
    return FileOutputs(reasons, np.flatnonzero([reason is None for reason in reasons]), joined)


def load_block(model: Embedder, files: Sequence[Path]) -> tuple[NDArray[np.uint8], list[str | None]]:
    """The pixels of the files that can be read, and for each file why it cannot."""

    def attempt(file: Path) -> NDArray[np.uint8] | str:
        try:
            return model.preprocessing.pixels(file)
        except Exception as error:  # a damaged file can raise almost anything from inside a decoder
            return str(error).replace(str(file), file.name) or type(error).__name__

    outcomes = list(map_in_threads(attempt, files))
    pixels = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    empty = np.zeros((0, model.preprocessing.channels, model.preprocessing.size, model.preprocessing.size), np.uint8)
    return np.stack(pixels) if pixels else empty, [
        outcome if isinstance(outcome, str) else None for outcome in outcomes
    ]


def prefetch(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """function(item) for every item, in order, one ahead of the consumer in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        pending = None
        for item in items:
            submitted = pool.submit(function, item)
            if pending is not None:
                yield pending.result()
            pending = submitted
        if pending is not None:
            yield pending.result()
