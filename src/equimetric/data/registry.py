"""Data sets by name. Each registers its loader by `@dataset("name")` in its own file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Annotated

from equimetric.errors import EquimetricError, quote, unknown_name
from equimetric.registry import Registry

if TYPE_CHECKING:
    from equimetric.data.dataset import Dataset

__all__ = [
    "DATASETS",
    "DatasetDescription",
    "InputSize",
    "dataset",
    "dataset_descriptions",
    "describe_dataset",
    "input_size_default",
    "load_dataset",
    "path_options",
]

FITS_BACKBONE = "at least the input size of the backbone"

InputSize = Annotated[int, FITS_BACKBONE]
"""Side of the stored images, an option; unless given, a run chooses it to fit its backbone."""

DATASETS: Registry[Callable[..., Dataset]] = Registry("data set", "equimetric.data")
"""Name → loader; its keyword arguments are the options, its first docstring line the description."""

dataset = DATASETS.register


@dataclass(frozen=True)
class DatasetDescription:
    """A data set that can be loaded by name: `options` with their defaults, `required` options without."""

    name: str
    description: str
    required: tuple[str, ...]
    options: Mapping[str, object]


def dataset_descriptions() -> tuple[DatasetDescription, ...]:
    """All data sets that `load_dataset` knows, by name."""
    return tuple(describe_dataset(name) for name in sorted(DATASETS))


def load_dataset(name: str, /, **options: object) -> Dataset:
    """The data set of that name; `dataset_descriptions` lists the names, and the options of each."""
    load = DATASETS.find(name)
    description = describe_dataset(name)
    for option in options:
        if option not in (*description.required, *description.options):
            raise unknown_name(f"option of data set {name!r}", option, (*description.required, *description.options))
    for option in description.required:
        if option not in options:
            raise EquimetricError(f"data set {name!r} needs the option {option!r}; give it a value")
    for option, value in options.items():
        if isinstance(description.options.get(option), bool) and not isinstance(value, bool):
            raise EquimetricError(f"option {option!r} of data set {name!r} is true or false, not {quote(value)}")
    for option in path_options(name) & options.keys():
        if not isinstance(options[option], str | PathLike | None):
            raise EquimetricError(
                f"option {option!r} of data set {name!r} is a path in quotes, not {quote(options[option])}"
            )
    return load(**options)


def path_options(name: str) -> set[str]:
    """The options of a data set that name files or folders, by the annotations of its loader."""
    parameters = inspect.signature(DATASETS.find(name)).parameters.values()
    return {parameter.name for parameter in parameters if "Path" in str(parameter.annotation)}


def input_size_default(name: str) -> int | None:
    """The default of the option `size`, where a run may choose another one; None where there is no such option."""
    size = inspect.signature(DATASETS.find(name)).parameters.get("size")
    if size is None or FITS_BACKBONE not in getattr(size.annotation, "__metadata__", ()):
        return None
    return int(size.default)


def describe_dataset(name: str) -> DatasetDescription:
    """The description and options of a data set."""
    load = DATASETS.find(name)
    parameters = inspect.signature(load).parameters.values()
    return DatasetDescription(
        name=name,
        description=(inspect.getdoc(load) or "").partition("\n")[0],
        required=tuple(parameter.name for parameter in parameters if parameter.default is parameter.empty),
        options={
            parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty
        },
    )
