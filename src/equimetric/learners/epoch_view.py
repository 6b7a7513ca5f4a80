"""The whole training set, as a learner sees it once an epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor

from equimetric.learners.batch import Batch

if TYPE_CHECKING:
    from equimetric.learners.learner import Learner, Outputs

__all__ = ["EpochView"]


class EpochView:
    """The training set as `on_epoch` sees it: everything is computed when first asked for, in evaluation mode.

    Attributes:
        labels: (N,) class ids of the training rows.
        history: the records of all validations so far.
    """

    def __init__(
        self,
        learner: Learner,
        labels: Tensor,
        attributes: Callable[[], Mapping[str, Tensor]],
        history: Sequence[Mapping[str, Any]],
        apply: Callable[[Callable[[Tensor], Outputs], Tensor | None], dict[str, Tensor]],
        evaluate: Callable[[Tensor, Tensor, Sequence[str]], dict[str, float]],
    ) -> None:
        self.labels = labels
        self._attributes = attributes
        self.history = history
        self._learner = learner
        self._apply = apply
        self._evaluate = evaluate

    @cached_property
    def _outputs(self) -> dict[str, Tensor]:
        return self._apply(lambda images: self._learner.outputs(Batch.unlabelled(images)), None)

    def _embed(self, rows: Tensor | None) -> Tensor:
        return self._apply(lambda images: {"embedding": self._learner.embed(images)}, rows)["embedding"]

    @cached_property
    def _embeddings(self) -> Tensor:
        return self._embed(None)

    @cached_property
    def attributes(self) -> Mapping[str, Tensor]:
        """Further labels of the training rows: (N,) ids by attribute of the data set, such as "script"."""
        return self._attributes()

    def embeddings(self) -> Tensor:
        """(N, D) aggregated embeddings."""
        return self._embeddings

    def outputs(self, *names: str) -> dict[str, Tensor]:
        """Outputs by name, (N, …) each; all of them where no name is given."""
        return {name: self._outputs[name] for name in names} if names else dict(self._outputs)

    def features(self, stage: str | None = None) -> Tensor:
        """(N, F) pooled features of the learner's backbone, at its end or after a named stage."""
        return self._apply(lambda images: {"features": self._learner.features(images, stage)}, None)["features"]

    def evaluate(self, rows: Tensor, metrics: Sequence[str]) -> dict[str, float]:
        """Metrics of the embeddings of some training rows, which are each other's gallery; no other row is embedded."""
        return self._evaluate(self._embed(rows), self.labels[rows], metrics)
