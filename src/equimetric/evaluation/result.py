"""`Evaluation`, the result of `evaluate`: metric values, and the scores of queries and classes behind them."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.evidence import Detail
from equimetric.files import write_atomically

if TYPE_CHECKING:
    from equimetric.evaluation.resampling import BootstrapInterval, PairedComparison

__all__ = ["Evaluation"]

Kind = TypeVar("Kind", bound=Detail)


@dataclass(frozen=True, repr=False, eq=False)
class Evaluation(Mapping[str, float]):
    """Metric values by name, with the scores of queries and classes that they summarise.

    Read one metric as evaluation["map@r"], all of them as dict(evaluation).

    scores           name → value, mostly a fraction in [0, 1]
    score_per_query  name → (N,) float64, for metrics that score single queries
    score_per_class  name → (C,) float64 by class number, for metrics that score single classes
    labels           the queries' labels as given: an int64 tensor (N,), or the strings; several labels multi-hot (N, C)
    class_labels     the label of each class number
    query_classes    (N,) the queries' class numbers; of several labels the numbers of the groups with the same labels
    queries          number of queries N, lone ones included
    gallery          number of gallery items G; None if the queries are their own gallery
    lone             number of queries without any relevant gallery item
    geometry         how vectors were compared: cosine, euclidean, dot, hamming
    path             how the similarities were computed, in words
    percent          the metrics that are shown as percentages
    details          name → results of the metric besides its value: curves, thresholds, ranges
    neighbours       gallery indices (N, n) of the n nearest items of each query, if requested
    """

    scores: Mapping[str, float]
    score_per_query: Mapping[str, Tensor]
    score_per_class: Mapping[str, Tensor]
    labels: Tensor | tuple[str, ...]
    class_labels: tuple[int, ...] | tuple[str, ...]
    query_classes: Tensor
    queries: int
    gallery: int | None
    lone: int
    geometry: str
    path: str
    percent: frozenset[str]
    details: Mapping[str, tuple[Detail, ...]] = field(default_factory=dict)
    neighbours: Tensor | None = None

    @property
    def multi_label(self) -> bool:
        """Whether queries have several labels each."""
        return isinstance(self.labels, Tensor) and self.labels.ndim == 2

    @property
    def memberships(self) -> tuple[Tensor, Tensor]:
        """Every query with each of its classes, (M,) query indices and class numbers."""
        if isinstance(self.labels, Tensor) and self.labels.ndim == 2:
            query, class_index = self.labels.nonzero(as_tuple=True)
            return query, class_index
        return torch.arange(len(self.query_classes)), self.query_classes

    def label(self, query: int) -> Any:
        """The label of a query, or the list of its labels."""
        label = self.labels[query]
        if isinstance(label, str):
            return label
        return [self.class_labels[index] for index in label.nonzero().flatten()] if label.ndim else label.item()

    @property
    def per_query(self) -> dict[str, Tensor]:
        """Name → float64 score of each query (N,); NaN marks a lone query that was excluded."""
        return dict(self.score_per_query)

    @property
    def per_class(self) -> dict[int | str, dict[str, float]]:
        """Class label → metric → value, for the classes that have queries; NaN where a metric is not defined."""
        columns = {name: values.tolist() for name, values in self.score_per_class.items()}
        return {
            self.class_labels[class_index]: {name: values[class_index] for name, values in columns.items()}
            for class_index in np.unique(self.memberships[1].numpy()).tolist()
        }

    def detail(self, kind: type[Kind], metric: str | None = None) -> Kind | None:
        """The detail of this kind of one metric, or of any metric, such as `Roc`; None if there is none."""
        candidates = self.details.values() if metric is None else [self.details.get(metric, ())]
        return next((detail for details in candidates for detail in details if isinstance(detail, kind)), None)

    @property
    def notes(self) -> list[str]:
        """What a reader of the values should know, such as that a score mostly measures noise; each sentence once."""
        notes = (note for details in self.details.values() for detail in details for note in detail.notes)
        return list(dict.fromkeys(notes))

    def to_dict(self) -> dict[str, Any]:
        """The summary in plain types, ready for JSON."""
        return {
            "metrics": {name: _to_json(value) for name, value in self.scores.items()},
            "queries": self.queries,
            "gallery": self.queries if self.gallery is None else self.gallery,
            "classes": len(self.class_labels),
            "lone": self.lone,
            "geometry": self.geometry,
            "path": self.path,
            "notes": self.notes,
        }

    def to_json(self, file: str | Path) -> None:
        """Write the summary, the scores of the classes, and the details without arrays of two dimensions."""
        per_class = [{"class": label, **_to_json(scores)} for label, scores in self.per_class.items()]
        all_entries = [detail.json_entries() for details in self.details.values() for detail in details]
        details = {key: value for entries in all_entries for key, value in entries.items()}
        document = {**self.to_dict(), "per_class": per_class, "details": _to_json(details)}
        write_atomically(Path(file), json.dumps(document, ensure_ascii=False, indent=1) + "\n")

    def to_dataframe(self) -> Any:
        """One row per query: its label and its scores, as a pandas DataFrame."""
        return _import_optional("pandas", "a DataFrame").DataFrame(self._per_query_columns())

    def to_parquet(self, file: str | Path) -> None:
        """Write one row per query, its label and its scores; the summary goes into the file's metadata."""
        pyarrow, parquet = (_import_optional(name, "a Parquet file") for name in ("pyarrow", "pyarrow.parquet"))
        table = pyarrow.table(self._per_query_columns())
        parquet.write_table(table.replace_schema_metadata({"equimetric": json.dumps(self.to_dict())}), Path(file))

    def plot_utility(self, **options: Any) -> Any:
        """The utility of every class against the threshold: see `evaluation.plots`."""
        return self._plots().plot_utility(self, **options)

    def plot_roc(self, **options: Any) -> Any:
        """True against false accept rate: see `evaluation.plots`."""
        return self._plots().plot_roc(self, **options)

    def plot_distances(self, **options: Any) -> Any:
        """Histograms of the distances of positive and negative pairs: see `evaluation.plots`."""
        return self._plots().plot_distances(self, **options)

    def interval(self, name: str, **options: Any) -> "BootstrapInterval":
        """A bootstrap interval of one metric, whole classes resampled: see `resampling.bootstrap`."""
        from equimetric.evaluation.resampling import bootstrap_interval

        return bootstrap_interval(self, name, **options)

    def compare(self, other: "Evaluation", **options: Any) -> "PairedComparison":
        """The paired comparison with another space on the same queries: see `resampling.paired`."""
        from equimetric.evaluation.resampling import compare_paired

        return compare_paired(self, other, **options)

    def __getitem__(self, name: str) -> float:
        return self.scores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        width = max(map(len, self.scores), default=0)
        gallery_text = "" if self.gallery is None else f" against {self.gallery} gallery items"
        sizes = f"{self.queries} queries{gallery_text}, {len(self.class_labels)} classes"
        if self.lone:
            sizes += f", {self.lone} queries without a relevant item"
        lines = [f"  {name:<{width}}  {self._format_score(name)}" for name in self.scores]
        return "\n".join([f"Evaluation: {sizes} ({self.geometry}, {self.path})", *lines, *self.notes])

    def _format_score(self, name: str) -> str:
        return f"{self.scores[name]:7.2%}" if name in self.percent else f"{self.scores[name]:8.5g}"

    def _per_query_columns(self) -> dict[str, Any]:
        single = isinstance(self.labels, Tensor) and not self.multi_label
        labels = np.asarray(self.labels) if single else [self.label(query) for query in range(self.queries)]
        return {"label": labels, **{name: score.numpy() for name, score in self.score_per_query.items()}}

    @staticmethod
    def _plots() -> ModuleType:
        return import_module("equimetric.evaluation.plots")


def _import_optional(module: str, purpose: str) -> ModuleType:
    """Import an optional dependency."""
    try:
        return import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        raise EquimetricError(
            f"{purpose} needs {library}, which is not installed; run: pip install {library}"
        ) from None


def _to_json(value: Any) -> Any:
    """What JSON can hold: NaN as null, arrays as lists; without those of more than one dimension."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(entry) for key, entry in value.items() if np.ndim(entry) < 2}
    if isinstance(value, np.ndarray | np.generic | Tensor):
        return _to_json(value.tolist())
    if isinstance(value, list | tuple):
        return [_to_json(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
