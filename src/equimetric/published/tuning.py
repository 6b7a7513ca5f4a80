"""Tuning of each loss in the Reality Check: the range of every hyperparameter and the optimum in it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import radians, sqrt
from typing import TYPE_CHECKING, Any

from equimetric.errors import EquimetricError
from equimetric.objectives.published import PUBLISHED, REALITY_CHECK
from equimetric.other_names import simplify
from equimetric.published.names import OUR_DATASETS, find_dataset
from equimetric.published.records import read_data

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "HYPERPARAMETER_FIELDS",
    "Hyperparameter",
    "describe_hyperparameter",
    "hyperparameters",
    "read_hyperparameters",
    "select_hyperparameters",
]

LEARNING_RATE = "objective_lr"
"""The learning rate of a loss's own parameters is no option of the loss but a key of a study's methods."""

OUR_OPTIONS = {
    ("ProxyNCA", "softmax_scale"): "embedding_multiplier",
    ("Margin", "margin"): "alpha",
    ("Margin/class", "margin"): "alpha",
    ("ArcFace", "margin"): "margin_rad",
    ("SNR", "regularizer_weight"): "reg",
    ("SoftTriple", "reg_weight"): "tau",
    ("SoftTriple", "margin"): "delta",
}
"""Printed method and parameter → our option, where its name differs."""

CONVERSIONS: dict[str, Callable[[float], float]] = {"margin_rad": radians, "embedding_multiplier": sqrt}
"""Our option → our value from the printed one: degrees in radians; the scale of ProxyNCA is a squared multiplier."""

OUR_SCALES = {"embedding_multiplier": "square"}
"""A range that is searched evenly in the square of our value."""


@dataclass(frozen=True)
class Hyperparameter:
    """A hyperparameter of a loss on a data set: where it was searched, and what was best.

    Attributes:
        dataset, method, parameter: as the paper has them; 'lr' is the learning rate of the loss's own parameters.
        batch: the batch size, 32 or 256.
        low, high, scale: the range, 'linear', 'log' or 'integer'.
        optimum: the best value of 50 trials, each on four folds of classes.

    """

    dataset: str
    batch: int
    method: str
    parameter: str
    low: float
    high: float
    scale: str
    optimum: float

    @property
    def our_method(self) -> str:
        """The method that reproduces the row."""
        return PUBLISHED[REALITY_CHECK][self.method][0]

    @property
    def our_options(self) -> dict[str, Any]:
        """The options that it needs beside the tuned ones."""
        return PUBLISHED[REALITY_CHECK][self.method][1]

    @property
    def our_dataset(self) -> str:
        """The argument of `load_dataset`."""
        return OUR_DATASETS[self.dataset]

    @property
    def our_option(self) -> str:
        """The option of our method, or 'objective_lr', which is set beside a method's options."""
        if self.parameter == "lr":
            return LEARNING_RATE
        return OUR_OPTIONS.get((self.method, self.parameter), self.parameter)

    @property
    def our_low(self) -> float:
        """The lower end of the range, for our option."""
        return self._convert(self.low)

    @property
    def our_high(self) -> float:
        """The upper end of the range, for our option."""
        return self._convert(self.high)

    @property
    def our_optimum(self) -> float:
        """The optimum, for our option."""
        return self._convert(self.optimum)

    @property
    def our_scale(self) -> str:
        """How the range was searched; 'square' means evenly in the square of our value."""
        return OUR_SCALES.get(self.our_option, self.scale)

    def _convert(self, value: float) -> float:
        # A whole number where the option is one.
        convert = int if self.scale == "integer" else CONVERSIONS.get(self.our_option, float)
        return convert(value)


HYPERPARAMETER_FIELDS = (
    *Hyperparameter.__dataclass_fields__,
    *(f"our_{name}" for name in ("method", "options", "dataset", "option", "low", "high", "scale", "optimum")),
)


@cache
def read_hyperparameters() -> tuple[Hyperparameter, ...]:
    """Every hyperparameter that the Reality Check tuned, by method, data set and batch size."""
    return tuple(
        Hyperparameter(
            dataset=row["dataset"],
            batch=int(row["batch"]),
            method=row["method"],
            parameter=row["parameter"],
            low=float(row["low"]),
            high=float(row["high"]),
            scale=row["scale"],
            optimum=float(row["optimum"]),
        )
        for row in read_data("hyperparameters")
    )


def select_hyperparameters(
    *, dataset: str | None = None, method: str | None = None, batch: int | None = None
) -> tuple[Hyperparameter, ...]:
    """The hyperparameters of one data set, method or batch size; names are the paper's or ours."""
    dataset_name = None if dataset is None else find_dataset(dataset)
    selected = tuple(
        row
        for row in read_hyperparameters()
        if dataset_name in (None, row.dataset)
        and (method is None or row.our_method == method or simplify(row.method) == simplify(method))
        and batch in (None, row.batch)
    )
    if not selected:
        raise EquimetricError(
            "the Reality Check has no hyperparameters for that; it tuned the methods of its table on CUB-200-2011, "
            "Cars-196 and SOP with batches of 32, and on CUB-200-2011 with 256"
        )
    return selected


def hyperparameters(*, dataset: str | None = None, method: str | None = None, batch: int | None = None) -> "DataFrame":
    """The tuned hyperparameters as a table: range and optimum as printed, and of our options (`our_…`)."""
    from pandas import DataFrame

    selected = select_hyperparameters(dataset=dataset, method=method, batch=batch)
    return DataFrame(map(describe_hyperparameter, selected))


def describe_hyperparameter(row: Hyperparameter) -> dict[str, Any]:
    """A hyperparameter as a flat record."""
    return {field: getattr(row, field) for field in HYPERPARAMETER_FIELDS}
