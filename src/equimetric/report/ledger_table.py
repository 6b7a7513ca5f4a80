"""The fairness ledger as a table for papers: what was checked, and the conditions in words."""

from __future__ import annotations

from equimetric.report.table_data import PlainTable, TableColumn, TableRow, text_cell
from equimetric.studies.ledger.text import checklist
from equimetric.studies.records import StudyRecord

__all__ = ["ledger_table"]

COLUMNS = (
    TableColumn("factor", is_text=True),
    TableColumn("status", is_text=True),
    TableColumn("found", is_text=True, wraps=True),
)


def ledger_table(study: StudyRecord) -> PlainTable | None:
    """The checklist, then the conditions in words, whose status the checklist has; None where neither is known."""
    ledger = study.ledger
    lines = [] if ledger is None else [(*line, "checked") for line in checklist(ledger)]
    lines += [(condition, "", value, "conditions") for condition, value in study.conditions.items()]
    if not lines:
        return None
    rows = tuple(
        TableRow((text_cell("factor", factor), text_cell("status", status), text_cell("found", found)), group)
        for factor, status, found, group in lines
    )
    notes = () if ledger is None else (ledger.sentence, *ledger.notes)
    return PlainTable(f"{study.title}: what was equal and what varied", COLUMNS, rows, notes)
