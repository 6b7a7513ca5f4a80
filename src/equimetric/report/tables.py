"""Tables in every format: terminal, Markdown, CSV, LaTeX, JSON and DataFrame."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

from equimetric.escaping import csv_text, latex_text, markdown_text, one_line, printable
from equimetric.report.table_data import Emphasis, PlainTable, TableCell, TableColumn, TableRow

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Console

    from equimetric.studies.statistics import Interval, RowComparison, TwoWayInterval
    from equimetric.studies.table import ComparisonTable, Row

__all__ = ["TABLE_FORMATS", "plain_table", "print_table", "to_csv", "to_frame", "to_json", "to_latex", "to_markdown"]

# Width of a terminal column beyond its text.
_PADDING = 3

_TERMINAL = {"": "", "bold": "bold", "tied": "underline"}
_MARKDOWN = {"": "{}", "bold": "**{}**", "tied": "*{}*"}
_LATEX = {"": "{}", "bold": r"\textbf{{{}}}", "tied": r"\underline{{{}}}"}

_LATEX_FIT = (
    r"\providecommand{\fittoline}[1]{\ifdefined\resizebox\sbox0{#1}\ifdim\wd0>\linewidth"
    r"\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi\else#1\fi}"
)

# `\raggedright` takes the end of a row away; a paragraph of its own would leave an empty line below the text.
_LATEX_RAGGED = r"\providecommand{\raggedcell}{\raggedright\let\\\tabularnewline}"

_LATEX_PAGE = 40
"""Lines that a float of a page has room for."""
_LATEX_WRAP, _LATEX_NOTE_WRAP = 33, 80
"""Letters in a line of a column that wraps, and of the notes."""


def plain_table(table: "ComparisonTable") -> PlainTable:
    """The table of a study as plain data; programs read stored units in full precision."""
    method, runs, *_, time, size = table.headings
    columns = [TableColumn(method, is_text=True), TableColumn(runs)]
    for place, column in enumerate(table.columns):
        columns.append(TableColumn(column.metric, "%" if column.percent else ""))
        verdicts = table.verdict_columns(column)
        columns += [TableColumn(heading, is_text=True) for heading, _ in verdicts]
        columns += [TableColumn("group" if place == 0 else f"{column.metric} group", is_text=True)] if verdicts else []
    columns += [TableColumn(time), TableColumn(size)]
    rows = (TableRow(_cells(table, row), row.kind) for row in table.rows)
    return PlainTable(table.title, tuple(columns), tuple(rows), table.footnotes)


def _cells(table: "ComparisonTable", row: "Row") -> tuple[TableCell, ...]:
    """The cells of a study's row; those of judged metrics are emphasised where the verdicts allow it."""
    return tuple(
        TableCell(text, data, emphasis)
        for text, (data, emphasis) in zip(table.texts(row), _row_data(table, row), strict=True)
    )


def print_table(table: "PlainTable | ComparisonTable", console: "Console | None" = None) -> None:
    """Print the table and its footnotes; columns that do not fit the terminal follow in further blocks."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = _plain(table).for_readers()
    console = console or Console()
    # Text objects, so that a name such as "[red]" is not read as markup.
    headings = [Text(one_line(column.heading)) for column in table.columns]
    lines = [[Text(one_line(cell.text), _TERMINAL[cell.emphasis]) for cell in row.cells] for row in table.rows]
    widths = [max(text.cell_len for text in column) + _PADDING for column in zip(headings, *lines, strict=True)]
    console.print(Text(one_line(table.title), style="bold"))
    for places in _blocks(widths, console.width):
        grid = Table(box=SIMPLE_HEAD, pad_edge=False)
        for place in places:
            grid.add_column(
                headings[place], justify="left" if table.columns[place].is_text else "right", overflow="fold"
            )
        for row, line, following in zip(table.rows, lines, (*table.rows[1:], *table.rows[-1:]), strict=True):
            grid.add_row(*(line[place] for place in places), end_section=row.group != following.group)
        console.print(grid)
    for footnote in table.footnotes:
        console.print(Text(one_line(footnote), style="dim"))


def to_markdown(table: "PlainTable | ComparisonTable") -> str:
    """The table in GitHub-flavoured Markdown, numbers aligned to the right."""
    table = _plain(table).for_readers()
    lines = [
        _markdown_line(markdown_text(column.heading) for column in table.columns),
        _markdown_line("---" if column.is_text else "---:" for column in table.columns),
        *(_markdown_line(_emphasise(_MARKDOWN, cell, markdown_text) for cell in row.cells) for row in table.rows),
    ]
    notes = [f"- {markdown_text(footnote)}" for footnote in table.footnotes]
    return "\n".join([f"**{markdown_text(table.title)}**", "", *lines, "", *notes, ""])


def to_csv(table: "PlainTable | ComparisonTable") -> str:
    """The table for programs: stored units, full precision, an empty field where there is no number."""
    table = _plain(table)
    records = table.records()
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([csv_text(name) for name in (records[0] if records else [column.name for column in table.columns])])
    for record in records:
        writer.writerow([_csv_value(value) for value in record.values()])
    return stream.getvalue()


def to_latex(table: "PlainTable | ComparisonTable") -> str:
    """The table as LaTeX floats, footnotes below the last; with the booktabs package or without it.

    A table that is longer than a page continues in further floats.
    """
    table = _plain(table).for_readers()
    lines = [
        r"% \usepackage{booktabs} has finer rules; these stand in for it where it is not loaded.",
        *(rf"\providecommand{{\{rule}}}{{\hline}}" for rule in ("toprule", "midrule", "bottomrule")),
        r"% \usepackage{graphicx} scales a table that is wider than the text; without it, it stays as wide as it is.",
        _LATEX_FIT,
        *([_LATEX_RAGGED] if any(column.wraps for column in table.columns) else []),
    ]
    parts = _latex_parts(table)
    for place, rows in enumerate(parts):
        lines += _latex_float(table, rows, continued=place > 0, last=place + 1 == len(parts))
    return "\n".join([*lines, ""])


def _latex_parts(table: PlainTable) -> list[tuple[TableRow, ...]]:
    """The rows of each float: as many floats as the table needs, about equally long."""
    heights = [_latex_height(table, row) for row in table.rows]
    notes = sum(ceil(len(footnote) / _LATEX_NOTE_WRAP) for footnote in table.footnotes)
    count = max(1, ceil((sum(heights) + notes) / _LATEX_PAGE))
    if count == 1:
        return [table.rows]
    limit = (sum(heights) + notes) / count
    parts: list[list[TableRow]] = [[]]
    taken = 0
    for row, height in zip(table.rows, heights, strict=True):
        if taken >= limit or (parts[-1] and taken + height > _LATEX_PAGE):
            parts.append([])
            taken = 0
        parts[-1].append(row)
        taken += height
    return [tuple(part) for part in parts]


def _latex_height(table: PlainTable, row: TableRow) -> int:
    """The lines that a row takes."""
    wrapped = (len(cell.text) for column, cell in zip(table.columns, row.cells, strict=True) if column.wraps)
    return max([1, *(ceil(length / _LATEX_WRAP) for length in wrapped)])


def _latex_float(table: PlainTable, rows: Sequence[TableRow], *, continued: bool, last: bool) -> list[str]:
    """The lines of one float with some of the rows."""
    title = table.title.rstrip(".") + (", continued." if continued else ".")
    body: list[str] = []
    for place, row in enumerate(rows):
        if place and rows[place - 1].group != row.group:
            body.append(r"\midrule")
        body.append(_latex_line(map(_latex_cell, table.columns, row.cells)))
    return [
        r"\begin{table}",
        *([r"\addtocounter{table}{-1}"] if continued else []),
        r"\centering\small\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{latex_text(title)}}}",
        r"\medskip",
        r"\fittoline{",
        rf"\begin{{tabular}}{{{''.join(map(_latex_alignment, table.columns))}}}",
        r"\toprule",
        _latex_line(latex_text(column.heading) for column in table.columns),
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}}",
        *(_latex_notes(table.footnotes) if last else ()),
        r"\end{table}",
    ]


def to_json(table: "PlainTable | ComparisonTable") -> str:
    """Title, columns with their units, rows in stored units, footnotes; null where there is no number."""
    table = _plain(table)
    document = {
        "title": table.title,
        "columns": [{"name": column.name, "unit": column.unit} for column in table.columns],
        "rows": table.records(),
        "footnotes": list(table.footnotes),
    }
    return json.dumps(_json_value(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


TABLE_FORMATS: dict[str, Callable[[PlainTable], str]] = {
    "md": to_markdown,
    "csv": to_csv,
    "tex": to_latex,
    "json": to_json,
}
"""Format, as it ends the name of a file → its writer."""


def to_frame(table: "PlainTable | ComparisonTable") -> "DataFrame":
    """The rows in stored units; title and footnotes are in `attrs`."""
    from pandas import DataFrame

    table = _plain(table)
    frame = DataFrame(table.records())
    frame.attrs = {"title": table.title, "footnotes": list(table.footnotes)}
    return frame


def _plain(table: "PlainTable | ComparisonTable") -> PlainTable:
    return table if isinstance(table, PlainTable) else plain_table(table)


def _row_data(table: "ComparisonTable", row: "Row") -> list[tuple[dict[str, Any], Emphasis]]:
    """The fields and the emphasis of each cell of a study's row."""
    cells: list[tuple[dict[str, Any], Emphasis]] = [
        ({"method": row.method, "kind": row.kind}, ""),
        ({"done": row.done, "failed": row.failed}, ""),
    ]
    for place, (column, cell) in enumerate(zip(table.columns, row.cells, strict=True)):
        metric = column.metric
        cells.append((_interval_data(metric, cell), row.emphasis.get(metric, "")))
        # Fields of the first metric, and of the study's own baseline, have short names.
        prefix = "" if place == 0 else f"{metric}_"
        verdicts = table.verdict_columns(column)
        for _, reference in verdicts:
            name = prefix if reference == table.baseline else f"{prefix}{reference}_"
            cells.append((_verdict_data(row.verdicts.get((metric, reference)), name), ""))
        if verdicts:
            cells.append(({f"{prefix}group": row.groups.get(metric, "")}, ""))
    return [*cells, ({"seconds": row.seconds}, ""), ({"parameters": row.parameters}, "")]


def _interval_data(metric: str, cell: "Interval | TwoWayInterval | None") -> dict[str, Any]:
    from equimetric.studies.judgement import known_half_width
    from equimetric.studies.table import count_seeds

    if cell is None:
        return {f"{metric}_mean": None, f"{metric}_half_width": None, f"{metric}_n": 0}
    width = known_half_width(cell)
    return {
        f"{metric}_mean": cell.mean,
        f"{metric}_half_width": width if isfinite(width) else None,
        f"{metric}_n": count_seeds(cell),
    }


def _verdict_data(comparison: "RowComparison | None", prefix: str) -> dict[str, Any]:
    """The verdict with its difference and joint ends."""
    names = [f"{prefix}{name}" for name in ("verdict", "difference", "difference_low", "difference_high")]
    if comparison is None:
        return dict.fromkeys(names)
    ends = (end if isfinite(end) else None for end in (comparison.low, comparison.high))
    return dict(zip(names, (comparison.verdict, comparison.interval.mean, *ends), strict=True))


def _blocks(widths: list[int], available: int) -> list[list[int]]:
    """Column indices of each block that fits the width; every block begins with column 0, the methods."""
    blocks = [[0]]
    for place in range(1, len(widths)):
        taken = sum(widths[other] for other in (*blocks[-1], place))
        if taken > available and len(blocks[-1]) > 1:
            blocks.append([0])
        blocks[-1].append(place)
    return blocks


def _emphasise(forms: Mapping[str, str], cell: TableCell, escape: Callable[[str], str]) -> str:
    text = escape(cell.text)
    return forms[cell.emphasis].format(text) if text else text


def _markdown_line(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _latex_alignment(column: TableColumn) -> str:
    """Sentences fill half a line and wrap; other texts are flush left, numbers flush right."""
    return r"p{0.5\linewidth}" if column.wraps else "l" if column.is_text else "r"


def _latex_cell(column: TableColumn, cell: TableCell) -> str:
    """A cell, ragged where it wraps: narrow lines have no room to be filled."""
    text = _emphasise(_LATEX, cell, latex_text)
    return rf"\raggedcell {text}" if column.wraps else text


def _latex_notes(footnotes: Iterable[str]) -> list[str]:
    """Notes below a table, small and as wide as the text."""
    notes = " ".join(map(latex_text, footnotes))
    return [r"\par\medskip", rf"\parbox{{\linewidth}}{{\footnotesize {notes}}}"] if notes else []


def _latex_line(texts: Iterable[str]) -> str:
    return " & ".join(texts) + r" \\"


def _csv_value(value: Any) -> Any:
    """A field as a spreadsheet takes it: no formula, no control character; options as JSON."""
    if isinstance(value, Mapping):
        return csv_text(json.dumps(value))
    return "" if value is None else csv_text(value) if isinstance(value, str) else value


def _json_value(value: Any) -> Any:
    """What JSON can hold: no lone surrogates, null for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {printable(name): _json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return printable(value) if isinstance(value, str) else value
