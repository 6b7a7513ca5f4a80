"""A ledger for readers: the checklist as rows of a table, and as Markdown."""

from __future__ import annotations

from equimetric.escaping import markdown_text
from equimetric.studies.ledger.record import Ledger, LedgerEntry

__all__ = ["CHECKLIST_HEADINGS", "checklist", "closing_lines", "ledger_to_markdown"]

CHECKLIST_HEADINGS = ("factor", "status", "found")


def checklist(ledger: Ledger) -> list[tuple[str, str, str]]:
    """One row for each factor: name, status, and what was found, with the remedy of a fault or the reason of a waiver.

    The causes of the Reality Check are numbered.
    """
    return [(title(entry), entry.status, f"{entry.finding}{advice(entry)}") for entry in ledger.entries]


def title(entry: LedgerEntry) -> str:
    """'2 Embedding dimension'; without a number where it is no cause of the Reality Check."""
    noun = entry.line.noun[0].upper() + entry.line.noun[1:]
    return f"{entry.line.cause} {noun}" if entry.line.cause else noun


def advice(entry: LedgerEntry) -> str:
    """' → remedy' of a fault, or why it is waived."""
    if entry.status == "waived":
        return f" → accepted: {entry.reason}"
    return f" → {entry.line.remedy}" if entry.is_fault else ""


def closing_lines(ledger: Ledger) -> list[str]:
    """Notes, each as a sentence of its own."""
    return [f"Note: {note}" for note in ledger.notes]


def ledger_to_markdown(ledger: Ledger) -> str:
    """The verdict, the checklist and the notes in GitHub-flavoured Markdown."""
    lines = [f"**{markdown_text(ledger.title)}**", ""]
    if ledger.source:
        lines += [markdown_text(ledger.source), ""]
    lines += [markdown_text(ledger.sentence), "", markdown_row(CHECKLIST_HEADINGS), "|---|---|---|"]
    lines += [markdown_row(row) for row in checklist(ledger)]
    notes = [f"- {markdown_text(line)}" for line in closing_lines(ledger)]
    return "\n".join([*lines, "", *notes, ""])


def markdown_row(cells: tuple[str, ...]) -> str:
    """One line of a table."""
    return f"| {' | '.join(map(markdown_text, cells))} |"
