"""Figures of the contrastive and the triplet loss in papers that propose another method."""

from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING

from equimetric.published.records import optional, read_data, select_results

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["ReportedBaseline", "read_baselines", "reported_baselines"]


@dataclass(frozen=True)
class ReportedBaseline:
    """The P@1 that one paper reports on a data set, in percent.

    Attributes:
        title, venue, year: the paper.
        method: the method that it proposes.
        dataset: as the Reality Check prints it.
        contrastive, triplet: the paper's baselines; None where it has none.
        proposed: its own method, as `quoted_by` quotes it; None where none of our papers does.
        doubt: why the quotation may not belong beside these baselines.

    """

    title: str
    venue: str
    year: int
    method: str
    dataset: str
    contrastive: float | None
    triplet: float | None
    proposed: float | None
    quoted_by: str | None
    doubt: str


@cache
def read_baselines() -> tuple[ReportedBaseline, ...]:
    """All reported baselines, in order of publication."""
    return tuple(
        ReportedBaseline(
            title=row["title"],
            venue=row["venue"],
            year=int(row["year"]),
            method=row["method"],
            dataset=row["dataset"],
            contrastive=optional(float, row["contrastive"]),
            triplet=optional(float, row["triplet"]),
            proposed=_read_quoted(row["quoted_by"], row["quoted_as"], row["dataset"]) if row["quoted_by"] else None,
            quoted_by=row["quoted_by"] or None,
            doubt=row["doubt"],
        )
        for row in read_data("baselines")
    )


def reported_baselines() -> "DataFrame":
    """Figures of 14 papers for contrastive and triplet loss and, where quoted, for their own method."""
    from pandas import DataFrame

    return DataFrame([asdict(baseline) for baseline in read_baselines()])


def _read_quoted(paper: str, method: str, dataset: str) -> float | None:
    """The P@1 that a paper quotes for a method."""
    matches = select_results(paper=paper, method=method, dataset=dataset, metric="recall@1")
    (value,) = (result.value for result in matches if result.quoted and result.method == method)
    return value
