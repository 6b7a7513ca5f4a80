"""Peak memory in tables: a column for the process, and one for the GPU, where runs know them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from equimetric.report.table_data import MISSING, TableCell, TableColumn
from equimetric.studies.records import RunRecord

__all__ = ["MEMORY_NOTE", "format_bytes", "known_memory", "memory_cells", "memory_columns"]

HEADINGS = {"process": "peak memory", "device": "peak GPU memory"}

MEMORY_NOTE = (
    "Peak memory: the largest resident set of the process while a run of the method was on, with libraries, data, and "
    "what earlier runs of the same process had left; the largest over runs."
)


def known_memory(runs: Iterable[RunRecord]) -> list[str]:
    """The kinds of memory that any run knows."""
    known = {kind for run in runs for kind in run.memory}
    return [kind for kind in HEADINGS if kind in known]


def memory_columns(kinds: Sequence[str]) -> list[TableColumn]:
    """A column for each kind."""
    return [TableColumn(HEADINGS[kind]) for kind in kinds]


def memory_cells(runs: Sequence[RunRecord], kinds: Sequence[str]) -> list[TableCell]:
    """The largest peak of the runs of one method, of each kind."""
    cells = []
    for kind in kinds:
        peaks = [run.memory[kind] for run in runs if kind in run.memory]
        peak = max(peaks, default=None)
        cells.append(TableCell(MISSING if peak is None else format_bytes(peak), {f"{kind}_bytes": peak}))
    return cells


def format_bytes(size: int) -> str:
    """'412 MB', '1.27 GB'."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
