"""`Accumulator`: embeddings collected batch by batch, on one rank or on several, and evaluated together."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.engine.inputs import EmbeddingsLike, LabelsLike, convert_embeddings, convert_labels
from equimetric.evaluation.evaluate import default_metrics, evaluate
from equimetric.evaluation.families import METRICS, parse_metrics
from equimetric.evaluation.result import Evaluation
from equimetric.evaluation.row_store import RowStore
from equimetric.processes import Processes

__all__ = ["Accumulator"]

EXCLUDED_OPTIONS = {
    *("embeddings", "labels", "gallery_embeddings", "gallery_labels", "metrics", "options"),
    *("query_ids", "gallery_ids", "parents", "gallery_parents"),
}
"""Parameters of `evaluate` that belong to single rows, or have another place here."""


class Accumulator:
    """Metrics of embeddings that come batch by batch: `update` in the loop, `compute` after it, then `reset`.

        accumulator = Accumulator(["recall@1", "map@r"])
        for images, labels, index in loader:
            accumulator.update(network(images), labels, index)
        accumulator.compute()["map@r"]

    `metrics` and `options` are those of `evaluate`, which computes them. Embeddings are kept on the CPU: `memory`
    bytes of them at most, beyond that in a temporary file, which `evaluate` reads piece by piece.

    Under torch.distributed every rank updates with its own rows and all of them call `compute`, which returns the same
    result everywhere; ranks may have different numbers of rows, or none. Give `index`, the position of every row in the
    data set: samplers repeat rows to give all ranks equally many, and a row that comes twice counts once. Rows are then
    in the order of the data set, and the result is that of one process to the last bit.
    """

    def __init__(self, metrics: str | Iterable[str] | None = None, *, memory: int = 2**30, **options: Any) -> None:
        metric_options = (name for family in METRICS.values() for name in family.options)
        valid_options = {*inspect.signature(evaluate).parameters, *metric_options} - EXCLUDED_OPTIONS
        for option in options:
            if option not in valid_options:
                raise unknown_name("option of an Accumulator", option, valid_options)
        if metrics is None:
            metrics = default_metrics(options.get("ks", (1, 2, 4, 8)))
        self.metrics = [metric.name for metric in parse_metrics(metrics)]
        self.options = options
        self.memory = memory
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self._sets = {"queries": _Rows(self.memory), "gallery": _Rows(self.memory)}

    def __len__(self) -> int:
        """Number of rows collected on this rank."""
        return sum(len(rows) for rows in self._sets.values())

    @torch.no_grad()
    def update(
        self, embeddings: EmbeddingsLike, labels: LabelsLike, index: LabelsLike | None = None, *, gallery: bool = False
    ) -> None:
        """Add a batch: (B, D) embeddings, B labels, and the (B,) positions of the rows in the data set.

        With `gallery` the rows are searched in and are no queries. Labels are class ids, strings, or multi-hot (B, C).
        """
        if not len(embeddings):
            return
        vectors = convert_embeddings(embeddings, "embeddings").cpu().numpy().copy()
        ids = _label_array(labels, len(vectors))
        indices = None if index is None else convert_labels(index, "index", len(vectors))
        self._sets["gallery" if gallery else "queries"].append(vectors, ids, indices)

    def compute(self) -> Evaluation:
        """The metrics of all rows of all ranks, on every rank."""
        processes = Processes.current()
        gathered = {name: rows.gather(processes) for name, rows in self._sets.items()}
        outcome: Evaluation | EquimetricError | None = None
        if processes.is_main:
            # The other ranks wait for an answer, so an error is one too.
            try:
                outcome = self._evaluate(gathered)
            except EquimetricError as error:
                outcome = error
        outcome = processes.broadcast(outcome)
        if isinstance(outcome, EquimetricError):
            raise outcome
        assert outcome is not None
        return outcome

    def _evaluate(self, gathered: Mapping[str, _Rows]) -> Evaluation:
        queries, gallery = gathered["queries"].sort(), gathered["gallery"].sort()
        gallery_set = (gallery.vectors.array(), gallery.labels()) if len(gallery) else (None, None)
        return evaluate(queries.vectors.array(), queries.labels(), *gallery_set, metrics=self.metrics, **self.options)

    def state_dict(self) -> dict[str, Any]:
        """The rows of this rank, as tensors and lists of strings."""
        return {name: rows.state() for name, rows in self._sets.items() if len(rows)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over rows that `state_dict` gave, in place of those collected so far."""
        self.reset()
        for name, rows in state.items():
            self.update(rows["embeddings"], rows["labels"], rows["index"], gallery=name == "gallery")


class _Rows:
    """Vectors with their labels, positions in the data set where given, and the ranks they come from."""

    def __init__(self, memory: int) -> None:
        self.vectors = RowStore(memory)
        self.label_pieces: list[NDArray[Any]] = []
        self.index_pieces: list[NDArray[Any]] = []
        self.rank_pieces: list[NDArray[Any]] = []

    def __len__(self) -> int:
        return len(self.vectors)

    def labels(self) -> NDArray[Any]:
        """(N,) or multi-hot (N, C)."""
        return np.concatenate(self.label_pieces)

    def index(self) -> NDArray[Any] | None:
        """(N,) positions in the data set, where they were given."""
        return np.concatenate(self.index_pieces) if self.index_pieces else None

    def append(
        self, vectors: NDArray[Any], labels: NDArray[Any], index: NDArray[Any] | None, rank: int | None = None
    ) -> None:
        """Add a batch, which has positions if the first one has."""
        if len(self) and bool(self.index_pieces) != (index is not None):
            raise EquimetricError("index is given for some batches and not for others; give it for all, or for none")
        if len(self) and labels.shape[1:] != self.label_pieces[0].shape[1:]:
            raise EquimetricError("class ids and multi-hot labels cannot be mixed; give all batches labels of one kind")
        if len(self) and (labels.dtype.kind == "U") != (self.label_pieces[0].dtype.kind == "U"):
            raise EquimetricError("labels are strings in some batches and numbers in others; give labels of one kind")
        self.vectors.append(vectors)
        self.label_pieces.append(labels)
        if index is not None:
            self.index_pieces.append(index)
        if rank is not None:
            self.rank_pieces.append(np.full(len(vectors), rank))

    def gather(self, processes: Processes) -> _Rows:
        """The rows of all ranks on the first one, sent a piece at a time; the others keep their own."""
        if not processes.is_distributed:
            return self
        gathered, pieces = _Rows(self.vectors.memory), list(self.vectors.pieces())
        rounds = [0] * processes.world_size
        dist.all_gather_object(rounds, len(pieces))
        for i in range(max(rounds)):
            piece = self.cut(pieces[i]) if i < len(pieces) else None
            received: list[Any] | None = [None] * processes.world_size if processes.is_main else None
            dist.gather_object(piece, received, dst=0)
            for rank, sent in enumerate(received or ()):
                if sent is not None:
                    vectors, labels, index = sent
                    gathered.append(vectors, labels, index, rank)
        return gathered

    def cut(self, rows: slice) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """Vectors, labels and positions of some rows."""
        index = self.index()
        return np.array(self.vectors.array()[rows]), self.labels()[rows], None if index is None else index[rows]

    def sort(self) -> _Rows:
        """One row for each position, in order of the data set; without positions all rows, in order of rank."""
        index = self.index()
        if index is not None:
            _, order = np.unique(index, return_index=True)
            _require_same_labels(index, self.labels(), order)
        elif self.rank_pieces:
            order = np.concatenate(self.rank_pieces).argsort(kind="stable")
        else:
            return self
        if np.array_equal(order, np.arange(len(self))):
            return self
        result = _Rows(self.vectors.memory)
        result.vectors = self.vectors.take(order)
        result.label_pieces = [self.labels()[order]]
        return result

    def state(self) -> dict[str, Any]:
        """Tensors, and lists of strings."""
        index = self.index()
        return {
            "embeddings": torch.from_numpy(np.array(self.vectors.array())),
            "labels": _to_state(self.labels()),
            "index": None if index is None else _to_state(index),
        }


def _label_array(labels: LabelsLike, count: int) -> NDArray[Any]:
    """(B,) integers or strings, or a multi-hot matrix (B, C)."""
    if isinstance(labels, Tensor | np.ndarray) and labels.ndim == 2 and labels.shape[1] > 1:
        array = labels.cpu().numpy() if isinstance(labels, Tensor) else labels
        if len(array) != count or not np.isin(array, (0, 1)).all():
            raise EquimetricError(
                f"labels of shape {array.shape} for {count} embeddings must be multi-hot: a row of 0 and 1 for each"
            )
        return array.astype(np.uint8)
    return convert_labels(labels, "labels", count)


def _require_same_labels(index: NDArray[Any], labels: NDArray[Any], first: NDArray[np.int64]) -> None:
    """Raise an error where one position has several labels: it is then no position in the data set."""
    position = np.searchsorted(index[first], index)
    differs = (labels != labels[first][position]).reshape(len(labels), -1).any(1)
    if differs.any():
        row = int(differs.argmax())
        raise EquimetricError(
            f"index {index[row]} comes with two labels; index is the position of a row in the whole data set, not in "
            "its batch"
        )


def _to_state(array: NDArray[Any]) -> Tensor | list[str]:
    return array.tolist() if array.dtype.kind == "U" else torch.from_numpy(array)
