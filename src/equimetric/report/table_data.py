"""A table as plain data, which `report.tables` renders in every format: what readers see, and what programs read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Literal

from equimetric.errors import EquimetricError

__all__ = [
    "Emphasis",
    "PlainTable",
    "TableCell",
    "TableColumn",
    "TableRow",
    "format_number",
    "format_share",
    "number_cell",
    "record_table",
    "text_cell",
]

Emphasis = Literal["", "bold", "tied"]
"""'bold' is the best, where the data allow to say so; 'tied' cannot be told apart from it."""

MISSING = "–"


@dataclass(frozen=True)
class TableColumn:
    """A column: its heading, and the unit of its numbers, shown behind the heading; one of sentences `wraps`."""

    name: str
    unit: str = ""
    is_text: bool = False
    wraps: bool = False

    @property
    def heading(self) -> str:
        """The name with its unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


@dataclass(frozen=True)
class TableCell:
    """A cell: its text, unescaped, and the fields that programs read in its place, such as mean, half width and n."""

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    emphasis: Emphasis = ""


@dataclass(frozen=True)
class TableRow:
    """A row; formats draw a line between rows of different groups."""

    cells: tuple[TableCell, ...]
    group: str = ""


@dataclass(frozen=True)
class PlainTable:
    """Title, columns, rows and footnotes; every row has a cell for each column.

    Readers are shown the first and the last `ends` rows where that is not 0; programs read all of them.
    """

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    footnotes: tuple[str, ...] = ()
    ends: int = 0

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise EquimetricError(
                    f"table {self.title!r} has {len(self.columns)} columns, but a row of {len(row.cells)} cells; "
                    "give every row a cell for each column"
                )

    def for_readers(self) -> PlainTable:
        """The table with the rows that readers are shown, and a note on those that are left out."""
        left_out = len(self.rows) - 2 * self.ends
        if self.ends == 0 or left_out <= 0:
            return self
        head, tail = self.rows[: self.ends], self.rows[-self.ends :]
        rows = (*(replace(row, group=f"{row.group} first") for row in head), *tail)
        note = f"The first and the last {self.ends} of {len(self.rows):,} rows; all are in the csv and json formats."
        return replace(self, rows=rows, footnotes=(*self.footnotes, note), ends=0)

    def records(self) -> list[dict[str, Any]]:
        """The fields of each row, the same ones in every row; `NAME_emphasis` beside columns that emphasise cells."""
        emphasised = {place for row in self.rows for place, cell in enumerate(row.cells) if cell.emphasis}
        rows = []
        for row in self.rows:
            fields: dict[str, Any] = {}
            for place, (column, cell) in enumerate(zip(self.columns, row.cells, strict=True)):
                fields |= cell.data
                if place in emphasised:
                    fields[f"{column.name}_emphasis"] = cell.emphasis
            rows.append(fields)
        names = list(dict.fromkeys(name for fields in rows for name in fields))
        return [{name: fields.get(name) for name in names} for fields in rows]


def record_table(title: str, fields: Sequence[str], records: Iterable[Mapping[str, Any]]) -> PlainTable:
    """A table with a column for each field, for programs; a field that a record lacks is empty."""
    rows = []
    for record in records:
        values = [(field, record.get(field)) for field in fields]
        rows.append(
            TableRow(tuple(TableCell("" if value is None else str(value), {name: value}) for name, value in values))
        )
    return PlainTable(title, tuple(TableColumn(field, is_text=True) for field in fields), tuple(rows))


def text_cell(name: str, text: str | None) -> TableCell:
    """A cell of text, with one field."""
    return TableCell(text or "", {name: text})


def number_cell(name: str, value: float | None, decimals: int = 0, half_width: float | None = None) -> TableCell:
    """A number with its half width, where there is one; a dash where there is no number."""
    data = {name: value} if half_width is None else {name: value, f"{name}_half_width": half_width}
    if value is None:
        return TableCell(MISSING, data)
    text = format_number(value, decimals)
    return TableCell(text if half_width is None else f"{text} ± {format_number(half_width, decimals)}", data)


def format_number(value: float, decimals: int = 0, *, signed: bool = False) -> str:
    """A number as readers see it: a true minus; with a sign in any case where it is `signed`."""
    # Adding zero turns a rounded -0.0 into 0.0.
    return f"{round(value, decimals) + 0.0:{'+' if signed else ''}.{decimals}f}".replace("-", "−")


def format_share(share: float) -> str:
    """A share in percent with three significant figures, as the scripts of a page write it."""
    percent = 100 * share
    if percent <= 0:
        return "0"
    # The power of ten after rounding: 0.09999 is 0.100. Halves go up, as in the scripts, not to the even digit.
    decimals = max(0, 2 - int(f"{percent:.2e}".partition("e")[2]))
    return f"{Decimal(percent).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP):f}"
