"""Papers versus reality: accuracy over the years, and how much better than contrastive and triplet loss methods are.

The relative improvement of a method with value m over a base with value b is 100 · (m − b) / b percent. For papers both
numbers are of one paper, which means of whatever conditions it chose for each; in reality both are of one table.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal, get_args

from equimetric.errors import EquimetricError, unknown_name
from equimetric.objectives.published import PUBLISHED, REALITY_CHECK
from equimetric.other_names import simplify
from equimetric.published.baselines import read_baselines
from equimetric.published.records import optional, select_results

__all__ = [
    "BASES",
    "Accuracy",
    "Base",
    "Improvement",
    "YearAverage",
    "average_by_year",
    "compare_accuracies",
    "compare_improvements",
    "paper_accuracies",
    "paper_improvements",
    "publication_year",
    "reality_check_rows",
    "relative_improvement",
    "table_accuracies",
    "table_improvements",
]

Base = Literal["contrastive", "triplet"]
BASES: tuple[Base, ...] = get_args(Base)

PAPERS_SOURCE = "papers (P@1)"

REALITY_CHECK_YEARS = {
    "Contrastive": 2006,
    "Triplet": 2006,
    "NT-Xent": 2016,
    "ProxyNCA": 2017,
    "Margin": 2017,
    "Margin/class": 2017,
    "N. Softmax": 2017,
    "CosFace": 2018,
    "ArcFace": 2019,
    "FastAP": 2019,
    "SNR": 2019,
    "MS": 2019,
    "MS+Miner": 2019,
    "SoftTriple": 2019,
}
"""The years that the Reality Check gives its methods, in its order."""


@dataclass(frozen=True)
class Improvement:
    """A method beside a base on one data set.

    Attributes:
        source: source of both values: papers, or the name of a table.
        base: 'contrastive' or 'triplet'.
        method, year: the method and the year of its publication, None where it is not known.
        dataset: the data set.
        value, base_value: the metric of the method and of the base, both in the same unit.

    """

    source: str
    base: Base
    method: str
    year: int | None
    dataset: str
    value: float
    base_value: float

    @property
    def percent(self) -> float:
        """The relative improvement in percent."""
        return relative_improvement(self.value, self.base_value)

    def record(self) -> dict[str, Any]:
        """All fields, flat."""
        return {**asdict(self), "percent": self.percent}


@dataclass(frozen=True)
class Accuracy:
    """A method's accuracy on one data set.

    Attributes:
        source: papers, or the name of a table.
        method, year: the method and the year of its publication, None where it is not known.
        dataset: the data set.
        value: the metric, in the unit of its source.
        n: papers that the value is the mean of, for the bases of papers; else 1.

    """

    source: str
    method: str
    year: int | None
    dataset: str
    value: float
    n: int = 1

    def record(self) -> dict[str, Any]:
        """All fields, flat."""
        return asdict(self)


@dataclass(frozen=True)
class YearAverage:
    """The mean relative improvement of the methods of one year, over `n` pairs of method and data set."""

    year: int
    percent: float
    n: int


def relative_improvement(value: float, base: float) -> float:
    """100 · (value − base) / base, in percent."""
    if not base > 0:
        raise EquimetricError(f"a relative improvement needs a base above 0, got {base}; give the base's own value")
    return 100 * (value - base) / base


def paper_improvements(base: Base) -> list[Improvement]:
    """Improvements that papers report: P@1 of a new method over the baseline in the same paper, by publication date.

    Leaves out methods whose own value no quotation has, and doubtful quotations; see `read_baselines`.
    """
    check_base(base)
    improvements = []
    for baseline in read_baselines():
        base_value = getattr(baseline, base)
        if base_value is not None and baseline.proposed is not None and not baseline.doubt:
            improvements.append(
                Improvement(
                    PAPERS_SOURCE, base, baseline.method, baseline.year, baseline.dataset, baseline.proposed, base_value
                )
            )
    return sorted(improvements, key=_by_year)


def paper_accuracies() -> list[Accuracy]:
    """P@1 as papers report it, by publication date: that of their own methods, and the means of their baselines.

    A mean is over all papers that report the base on a data set. Left out are methods whose own value no quotation has,
    and doubtful quotations.
    """
    accuracies = []
    for base in BASES:
        reported: dict[str, list[float]] = {}
        for baseline in read_baselines():
            value = getattr(baseline, base)
            if value is not None:
                reported.setdefault(baseline.dataset, []).append(value)
        name = base.capitalize()
        accuracies += [
            Accuracy(PAPERS_SOURCE, name, REALITY_CHECK_YEARS[name], dataset, sum(values) / len(values), len(values))
            for dataset, values in reported.items()
        ]
    accuracies += [
        Accuracy(PAPERS_SOURCE, baseline.method, baseline.year, baseline.dataset, baseline.proposed)
        for baseline in read_baselines()
        if baseline.proposed is not None and not baseline.doubt
    ]
    return sorted(accuracies, key=_by_year)


def reality_check_rows(*, metric: str = "P@1", variant: str = "concatenated") -> list[dict[str, Any]]:
    """The Reality Check's table as rows of `table_improvements`, without its row of a network that is not trained."""
    matches = select_results(paper="reality-check", metric=metric, variant=variant)
    if not matches:
        raise EquimetricError(f"the Reality Check has no {metric}; choose P@1, RP or MAP@R")
    return [
        {
            "method": result.method,
            "year": REALITY_CHECK_YEARS[result.method],
            "dataset": result.dataset,
            "value": result.value,
        }
        for result in matches
        if result.method in REALITY_CHECK_YEARS
    ]


def publication_year(method: str) -> int | None:
    """The year of a method's paper: the Reality Check's, else that of the catalogue; of a sum, its latest term's.

    None for a name that is no method.
    """
    from equimetric.objectives.grammar import parse_method

    our_years = {PUBLISHED[REALITY_CHECK][name][0]: year for name, year in REALITY_CHECK_YEARS.items()}
    if method in our_years or method in REALITY_CHECK_YEARS:
        return our_years.get(method) or REALITY_CHECK_YEARS[method]
    try:
        recipes = [recipe for _, recipe in parse_method(method)]
    except EquimetricError:
        return None
    years = [our_years.get(recipe.name) or recipe.year for recipe in recipes]
    return max((year for year in years if year is not None), default=None)


def table_improvements(rows: Iterable[Mapping[str, Any]], base: Base, *, source: str = "reality") -> list[Improvement]:
    """Improvement of each method of a table over the base, on each data set, in order of publication.

    A row has `method`, `dataset`, `value` (of one metric, in any unit) and may have `year`, by default that of
    `publication_year`. The base is the row called 'contrastive' or 'triplet', in any spelling. Methods of an unknown
    year come last.
    """
    check_base(base)
    rows = [check_row(row) for row in rows]
    base_values = {row["dataset"]: row["value"] for row in rows if simplify(row["method"]) == base}
    missing = [dataset for dataset in dict.fromkeys(row["dataset"] for row in rows) if dataset not in base_values]
    if missing:
        raise EquimetricError(
            f"the table has no row of {base!r} on {missing[0]!r}, so nothing can be compared with it there; "
            f"add the row, or leave the data set out"
        )
    improvements = [
        Improvement(
            source=source,
            base=base,
            method=row["method"],
            year=year_of(row),
            dataset=row["dataset"],
            value=row["value"],
            base_value=base_values[row["dataset"]],
        )
        for row in rows
        if simplify(row["method"]) != base
    ]
    return sorted(improvements, key=_by_year)


def table_accuracies(rows: Iterable[Mapping[str, Any]], *, source: str = "reality") -> list[Accuracy]:
    """The rows of a table in order of publication; see `table_improvements` for what a row has."""
    accuracies = [
        Accuracy(source, row["method"], year_of(row), row["dataset"], row["value"]) for row in map(check_row, rows)
    ]
    return sorted(accuracies, key=_by_year)


def compare_accuracies(file: Path | None = None, *, metric: str = "P@1") -> list[Accuracy]:
    """Papers versus reality over the years: what papers report, and the table of `compare_improvements`."""
    rows, source = choose_table(file, metric)
    return [*paper_accuracies(), *table_accuracies(rows, source=source)]


def compare_improvements(file: Path | None = None, *, metric: str = "P@1") -> list[Improvement]:
    """Papers versus reality, over both bases: the Reality Check's table of a metric, or the table in a CSV file."""
    rows, source = choose_table(file, metric)
    reality = [table_improvements(rows, base, source=source) for base in BASES]
    return [
        *(improvement for base in BASES for improvement in paper_improvements(base)),
        *(improvement for improvements in reality for improvement in improvements),
    ]


def choose_table(file: Path | None, metric: str) -> tuple[list[dict[str, Any]], str]:
    """The rows of a CSV file, or else of the Reality Check's table, and what they are called."""
    if file is not None:
        return read_rows(file), file.stem
    return reality_check_rows(metric=metric), f"Reality Check ({metric})"


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file with the columns method, dataset, value and, if known, year."""
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError) as error:
        raise EquimetricError(f"cannot read the table {file}: {error}; give a CSV file") from error
    try:
        return [{**row, "value": float(row["value"]), "year": optional(int, row.get("year") or "")} for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise EquimetricError(
            f"the table {file} needs the columns method, dataset and value, a number, and may have year; {error}"
        ) from error


def average_by_year(improvements: Iterable[Improvement]) -> list[YearAverage]:
    """The trend: the mean improvement of each year's methods over all data sets, without methods of unknown year."""
    by_year: dict[int, list[float]] = {}
    for improvement in improvements:
        if improvement.year is not None:
            by_year.setdefault(improvement.year, []).append(improvement.percent)
    return [
        YearAverage(year, sum(percents) / len(percents), len(percents)) for year, percents in sorted(by_year.items())
    ]


def check_base(base: str) -> None:
    """Raise an error for a base that is neither."""
    if base not in BASES:
        raise unknown_name("base", base, BASES)


def check_row(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row, if it has what an improvement needs."""
    for field in ("method", "dataset", "value"):
        if row.get(field) is None:
            raise EquimetricError(f"a row of a table needs {field!r}; got {dict(row)}")
    return row


def year_of(row: Mapping[str, Any]) -> int | None:
    """The year of a row's method: its own, or that of `publication_year`."""
    year: int | None = row.get("year")
    return publication_year(row["method"]) if year is None else year


def _by_year(dated: Accuracy | Improvement) -> float:
    return inf if dated.year is None else dated.year
