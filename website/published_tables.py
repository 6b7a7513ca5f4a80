"""Published numbers of a method as tables, with the digits that the papers print."""

from collections import Counter
from collections.abc import Iterable
from functools import cache

from equimetric.published import PublishedResult, select_results
from equimetric.published.names import PAPERS

__all__ = ["published_results", "published_tables"]

SHOWN = ("P@1", "R@1", "RP", "MAP@R", "NMI", "OPIS (1e-3)", "10%-OPIS (1e-3)")


def published_results(method: str) -> list[PublishedResult]:
    """What papers print about a method, alone or as a term of a sum."""
    return [
        result
        for result in select_results()
        if method in (result.our_method or "").split("+") and result.value is not None and result.metric in SHOWN
    ]


def published_tables(published: Iterable[PublishedResult]) -> str:
    """A table for each paper, under its name."""
    papers: dict[str, list[PublishedResult]] = {}
    for result in published:
        papers.setdefault(result.paper, []).append(result)
    return "\n".join(f"{PAPERS.get(paper, paper)}:\n\n{published_table(rows)}" for paper, rows in papers.items())


def published_table(published: Iterable[PublishedResult]) -> str:
    """One row for each setting, one column for each metric that occurs."""
    settings: dict[tuple[str, ...], dict[str, str]] = {}
    for result in published:
        width = f" ± {result.half_width:.{decimals('half_width', result)}f}" if result.half_width is not None else ""
        mark = " (doubtful)" if result.doubtful else " (quoted)" if result.quoted else ""
        setting = (
            result.dataset,
            result.backbone or "–",
            str(result.dim or "–"),
            result.variant or "",
            result.method,
        )
        settings.setdefault(setting, {})[result.metric] = f"{result.value:.{decimals('value', result)}f}{width}{mark}"
    metrics = [metric for metric in SHOWN if any(metric in row for row in settings.values())]
    headings = [metric.removesuffix(" (1e-3)") for metric in metrics]
    lines = [
        f"| data | backbone | dim | row | {' | '.join(headings)} |",
        f"|---|---|---:|---|{'---:|' * len(metrics)}",
    ]
    for (dataset, backbone, dim, variant, method), row in settings.items():
        name = f"{method}, {variant}" if variant else method
        cells = " | ".join(row.get(metric, "") for metric in metrics)
        lines.append(f"| {dataset} | {backbone} | {dim} | {name} | {cells} |")
    return "\n".join(lines) + "\n"


def decimals(column: str, result: PublishedResult) -> int:
    """Digits behind the point that the paper prints: those of most numbers beside this one, or more if it has more.

    A stored number has lost the zeros at its end.
    """
    return max(own_decimals(getattr(result, column)), usual_decimals()[column, *place_of(result)])


@cache
def usual_decimals() -> dict[tuple[object, ...], int]:
    """The digits behind the point that most numbers have, for each column of each printed table."""
    counts: dict[tuple[object, ...], Counter[int]] = {}
    for result in select_results():
        for column in ("value", "half_width"):
            value = getattr(result, column)
            if value is not None:
                counts.setdefault((column, *place_of(result)), Counter())[own_decimals(value)] += 1
    return {place: count.most_common(1)[0][0] for place, count in counts.items()}


def place_of(result: PublishedResult) -> tuple[object, ...]:
    """What numbers have in common that are printed alike; those quoted have the digits of their source."""
    return result.paper, result.table, result.metric, result.quoted


def own_decimals(value: float) -> int:
    """Digits behind the point up to the last that is not zero."""
    return len(f"{value:g}".partition(".")[2])
