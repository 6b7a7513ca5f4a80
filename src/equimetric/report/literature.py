"""Published results and tuned hyperparameters as tables."""

from collections.abc import Iterable, Iterator, Sequence

from equimetric.published import Hyperparameter, PublishedResult
from equimetric.published.names import PAPERS
from equimetric.published.records import RESULT_FIELDS, describe_result
from equimetric.published.tuning import HYPERPARAMETER_FIELDS, describe_hyperparameter
from equimetric.report.table_data import (
    MISSING,
    PlainTable,
    TableCell,
    TableColumn,
    TableRow,
    number_cell,
    record_table,
    text_cell,
)

__all__ = [
    "hyperparameter_records",
    "hyperparameter_table",
    "overview_table",
    "printed_tables",
    "result_records",
]

BOLD = "printed in bold"


def overview_table(results: Sequence[PublishedResult]) -> PlainTable:
    """How many results each paper has on each data set, and of which metrics."""
    columns = (
        *(TableColumn(name, is_text=True) for name in ("paper", "dataset")),
        *(TableColumn(name) for name in ("results", "methods")),
        TableColumn("metrics", is_text=True),
    )
    rows = []
    for paper, dataset in dict.fromkeys((result.paper, result.dataset) for result in results):
        own = [result for result in results if (result.paper, result.dataset) == (paper, dataset)]
        cells = (
            text_cell("paper", paper),
            text_cell("dataset", dataset),
            number_cell("results", len(own)),
            number_cell("methods", len({result.method for result in own})),
            text_cell("metrics", ", ".join(dict.fromkeys(result.metric for result in own))),
        )
        rows.append(TableRow(cells, paper))
    citations = tuple(f"{paper}: {citation}." for paper, citation in PAPERS.items())
    return PlainTable(f"{len(results)} published results", columns, tuple(rows), citations)


def result_records(results: Iterable[PublishedResult]) -> PlainTable:
    """One row per result, with all its fields, for programs."""
    return record_table("Published results", RESULT_FIELDS, map(describe_result, results))


def hyperparameter_records(parameters: Iterable[Hyperparameter]) -> PlainTable:
    """One row per hyperparameter, with all its fields, for programs."""
    return record_table("Tuned hyperparameters", HYPERPARAMETER_FIELDS, map(describe_hyperparameter, parameters))


def printed_tables(results: Iterable[PublishedResult]) -> list[PlainTable]:
    """The results as papers print them: a table for each table and data set, a row per method, a column per metric."""
    tables: dict[tuple[str, str, str], list[PublishedResult]] = {}
    for result in results:
        tables.setdefault((result.paper, result.table, result.dataset), []).append(result)
    return [
        _printed_table(f"{paper}, {table}" if dataset in table else f"{paper}, {table}: {dataset}", cells)
        for (paper, table, dataset), cells in tables.items()
    ]


def hyperparameter_table(parameters: Iterable[Hyperparameter]) -> PlainTable:
    """Range and optimum of every hyperparameter as printed, and the optimum of our option."""
    columns = (
        TableColumn("method", is_text=True),
        TableColumn("dataset", is_text=True),
        TableColumn("batch"),
        TableColumn("parameter", is_text=True),
        TableColumn("range"),
        TableColumn("scale", is_text=True),
        TableColumn("optimum"),
        TableColumn("our method", is_text=True),
        TableColumn("our option", is_text=True),
        TableColumn("our optimum"),
    )
    rows = []
    for one in parameters:
        cells = (
            text_cell("method", one.method),
            text_cell("dataset", one.dataset),
            number_cell("batch", one.batch),
            text_cell("parameter", one.parameter),
            TableCell(f"{one.low:g} … {one.high:g}", {"low": one.low, "high": one.high}),
            text_cell("scale", one.scale),
            TableCell(f"{one.optimum:g}", {"optimum": one.optimum}),
            text_cell("our_method", one.our_method),
            text_cell("our_option", one.our_option),
            TableCell(f"{one.our_optimum:.4g}", {"our_optimum": one.our_optimum}),
        )
        rows.append(TableRow(cells, f"{one.method} {one.dataset} {one.batch}"))
    footnotes = (
        f"{PAPERS['reality-check']}: the best of 50 trials, by the mean MAP@R of four folds of validation classes.",
        "lr, here objective_lr, is the learning rate of the loss's own parameters.",
    )
    return PlainTable("Tuned hyperparameters", columns, tuple(rows), footnotes)


def _printed_table(title: str, results: list[PublishedResult]) -> PlainTable:
    metrics = list(dict.fromkeys(result.metric for result in results))
    decimals = {metric: _decimals(one.value for one in results if one.metric == metric) for metric in metrics}
    rows: dict[tuple[object, ...], dict[str, PublishedResult]] = {}
    # Rows of one group together, those that the paper measured first.
    for result in sorted(results, key=lambda result: result.quoted):
        rows.setdefault((_group(result), result.backbone, result.dim, result.method), {})[result.metric] = result
    groups = list(dict.fromkeys(group for group, *_ in rows))
    lines = []
    for (group, *_), found in sorted(rows.items(), key=lambda row: groups.index(row[0][0])):
        first = next(iter(found.values()))
        cells = [
            TableCell(_label(first)),
            TableCell(first.backbone or MISSING),
            TableCell(" ".join(str(part) for part in (first.dim, first.variant) if part) or MISSING),
            *(_result_cell(found.get(metric), decimals[metric]) for metric in metrics),
        ]
        lines.append(TableRow(tuple(cells), str(group)))
    columns = (
        *(TableColumn(name, is_text=True) for name in ("method", "backbone")),
        TableColumn("dim"),
        # A metric that names its own unit needs no other.
        *(TableColumn(metric, "" if "(" in metric else "%") for metric in metrics),
    )
    doubts = tuple(f"(?) {_label(one)}, {one.metric}: {one.doubt}." for one in results if one.doubtful)
    return PlainTable(title, columns, tuple(lines), (*doubts, *_notes(results)))


def _group(result: PublishedResult) -> str:
    """What the rows between two lines of a table have in common."""
    return "quoted" if result.quoted else f"{result.backbone} {result.variant}"


def _label(result: PublishedResult) -> str:
    return f"{result.method} (quoted)" if result.quoted else result.method


def _result_cell(result: PublishedResult | None, decimals: int) -> TableCell:
    if result is None:
        return TableCell(MISSING)
    text = number_cell("value", result.value, decimals, result.half_width).text
    return TableCell(f"{text} (?)" if result.doubtful else text, emphasis="bold" if result.note == BOLD else "")


def _decimals(values: Iterable[float | None]) -> int:
    """As many as the most precise of the values has."""
    return max((len(f"{value:g}".partition(".")[2]) for value in values if value is not None), default=0)


def _notes(results: Sequence[PublishedResult]) -> Iterator[str]:
    """One sentence for each remark on some of the results, with the methods it is on."""
    noted: dict[str, list[PublishedResult]] = {}
    for result in results:
        for note in filter(None, result.note.split("; ")):
            noted.setdefault(note, []).append(result)
    for note, noted_results in noted.items():
        if note == BOLD:
            yield "Bold as in the paper."
        else:
            several = len({one.backbone for one in results if not one.quoted}) > 1
            names = (
                f"{one.method} ({one.backbone})" if several and not one.quoted else _label(one) for one in noted_results
            )
            yield f"{note}: {'all' if len(noted_results) == len(results) else ', '.join(dict.fromkeys(names))}."
