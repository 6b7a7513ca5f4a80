"""The comparison table in four formats: terminal, Markdown, CSV and LaTeX."""

import csv
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

from equimetric.escaping import csv_text, latex_text, markdown_text, one_line
from equimetric.studies.statistics import Interval
from equimetric.studies.table import ComparisonTable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_table", "to_csv", "to_latex", "to_markdown"]

# Width of a terminal column beyond its text.
_PADDING = 3


def print_table(table: ComparisonTable, console: "Console | None" = None) -> None:
    """Print the table and its footnotes; columns that do not fit the terminal follow in further blocks."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console()
    # Text objects, so that a name such as "[red]" is not read as markup.
    lines = [[Text(one_line(text)) for text in line] for line in (table.headings, *map(table.texts, table.rows))]
    widths = [max(text.cell_len for text in column) + _PADDING for column in zip(*lines, strict=True)]
    console.print(Text(one_line(table.title), style="bold"))
    for places in _blocks(widths, console.width):
        grid = Table(box=SIMPLE_HEAD, pad_edge=False)
        for place in places:
            grid.add_column(lines[0][place], justify="right" if place else "left", overflow="fold")
        for row, line, following in zip(table.rows, lines[1:], (*table.rows[1:], table.rows[-1]), strict=True):
            grid.add_row(*(line[place] for place in places), end_section=row.kind != following.kind)
        console.print(grid)
    for footnote in table.footnotes:
        console.print(Text(one_line(footnote), style="dim"))


def to_markdown(table: ComparisonTable) -> str:
    """The table in GitHub-flavoured Markdown, numbers aligned to the right."""
    lines = [
        _markdown_line(table.headings),
        _markdown_line(["---", *["---:"] * (len(table.headings) - 1)], escape=False),
        *(_markdown_line(table.texts(row)) for row in table.rows),
    ]
    notes = [f"- {markdown_text(footnote)}" for footnote in table.footnotes]
    return "\n".join([f"**{markdown_text(table.title)}**", "", *lines, "", *notes, ""])


def to_csv(table: ComparisonTable) -> str:
    """The table for programs: stored units, full precision, an empty field where there is no number."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    metric_fields = (f"{c.metric}_{part}" for c in table.columns for part in ("mean", "half_width", "n"))
    fields = ["method", "kind", "done", "failed", *metric_fields, "seconds", "parameters"]
    writer.writerow([csv_text(name) for name in fields])
    for row in table.rows:
        numbers = [number for cell in row.cells for number in _csv_numbers(cell)]
        end = ["" if number is None else number for number in (row.seconds, row.parameters)]
        writer.writerow([csv_text(row.method), row.kind, row.done, row.failed, *numbers, *end])
    return stream.getvalue()


def to_latex(table: ComparisonTable) -> str:
    """The table as a LaTeX float for the booktabs package, footnotes in the caption."""
    caption = " ".join(latex_text(sentence) for sentence in (table.title.rstrip(".") + ".", *table.footnotes))
    body: list[str] = []
    for row, previous in zip(table.rows, (None, *table.rows[:-1]), strict=True):
        if previous is not None and previous.kind != row.kind:
            body.append(r"\midrule")
        body.append(_latex_line(table.texts(row)))
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.headings) - 1)}}}",
        r"\toprule",
        _latex_line(table.headings),
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _blocks(widths: list[int], available: int) -> list[list[int]]:
    """Column indices of each block that fits the width; every block begins with column 0, the methods."""
    blocks = [[0]]
    for place in range(1, len(widths)):
        taken = sum(widths[other] for other in (*blocks[-1], place))
        if taken > available and len(blocks[-1]) > 1:
            blocks.append([0])
        blocks[-1].append(place)
    return blocks


def _markdown_line(texts: Iterable[str], escape: bool = True) -> str:
    return f"| {' | '.join(markdown_text(text) if escape else text for text in texts)} |"


def _latex_line(texts: Iterable[str]) -> str:
    return " & ".join(latex_text(text) for text in texts) + r" \\"


def _csv_numbers(cell: Interval | None) -> tuple[float | str, float | str, int]:
    if cell is None:
        return "", "", 0
    return cell.mean, cell.half_width if cell.n > 1 else "", cell.n
