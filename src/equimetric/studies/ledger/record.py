"""The ledger of a comparison: one entry for each line of the checklist, waivers, notes, and the verdict."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from equimetric.checksums import json_document, read_json
from equimetric.errors import DamagedFileError, EquimetricError, unknown_name
from equimetric.files import write_atomically
from equimetric.studies.ledger.factors import CAUSE_COUNT, FACTORS, Factor, FactorName

__all__ = ["LEDGER_FILE", "EntryStatus", "Ledger", "LedgerEntry", "SelectedOn", "StudyFacts", "Verdict", "waive"]

LEDGER_FILE = "ledger.json"
LEDGER_SCHEMA = 1
ADVICE = "run `equimetric compare` with the study's file again: it writes the file anew and keeps the finished runs"

EntryStatus: TypeAlias = Literal["equal", "met", "declared", "waived", "differs", "violated", "not stated"]
"""Factors are equal or differ between methods, requirements are met or violated."""

SelectedOn: TypeAlias = Literal["validation", "test"]

Verdict: TypeAlias = Literal["fair", "not fair", "not shown to be fair"]

FAULTS = ("differs", "violated")


class LedgerEntry(BaseModel):
    """The finding on one factor.

    Attributes:
        factor: a name of `FACTORS`.
        status: whether it is equal, met, and so on.
        finding: the finding, with the values and their methods.
        methods: those that differ from most others, violate the requirement, or do not state the factor.
        reason: why it is waived.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    factor: FactorName
    status: EntryStatus
    finding: str
    methods: tuple[str, ...] = ()
    reason: str = ""

    @property
    def line(self) -> Factor:
        """The line of the checklist."""
        return FACTORS[self.factor]

    @property
    def is_fault(self) -> bool:
        """Whether it makes the comparison unfair."""
        return self.status in FAULTS


class StudyFacts(BaseModel):
    """Facts of a study that the configurations of its runs do not contain.

    Attributes:
        trials: row → trials of its search; None where it has nothing to tune, 0 for rows that are not listed.
        dims: row → dimension of its embedding, where that is not `model.dim`.
        selected_on: the part of the data by which weights and hyper-parameters are chosen.
        tuned: conditions that a search chooses for each row: the value in the study's file is not used.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    trials: dict[str, int | None] = {}
    dims: dict[str, int] = {}
    selected_on: SelectedOn = "validation"
    tuned: tuple[str, ...] = ()


class Ledger(BaseModel):
    """The fairness ledger of a comparison: equal, declared, waived and violated factors.

    Attributes:
        title: title of the comparison.
        source: its origin.
        varies: factors declared to vary besides the methods themselves.
        waivers: factor → why its fault is accepted.
        entries: one for each line of the checklist that applies.
        notes: remarks for readers that are no faults.
        facts: for a study, facts that the configurations of its runs do not contain.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ledger_schema: int = Field(LEDGER_SCHEMA, alias="schema")
    title: str
    source: str = ""
    varies: tuple[str, ...] = ()
    waivers: dict[str, str] = {}
    entries: tuple[LedgerEntry, ...]
    notes: tuple[str, ...] = ()
    facts: StudyFacts = StudyFacts()

    def __getitem__(self, factor: str) -> LedgerEntry:
        return {str(entry.factor): entry for entry in self.entries}[factor]

    @property
    def faults(self) -> tuple[LedgerEntry, ...]:
        """The faults that make the comparison unfair."""
        return tuple(entry for entry in self.entries if entry.is_fault)

    @property
    def unstated(self) -> tuple[LedgerEntry, ...]:
        """Factors that are not known for all methods."""
        return tuple(entry for entry in self.entries if entry.status == "not stated")

    @property
    def waived(self) -> tuple[LedgerEntry, ...]:
        """Faults and unknown factors that are accepted for a stated reason."""
        return tuple(entry for entry in self.entries if entry.status == "waived")

    @property
    def verdict(self) -> Verdict:
        """Fair only where no factor has a fault and every one is stated, or waived."""
        if self.faults:
            return "not fair"
        return "not shown to be fair" if self.unstated else "fair"

    @property
    def sentence(self) -> str:
        """The verdict with its reasons."""
        causes = [entry.line.wrong for entry in self.faults if entry.line.cause]
        other_faults = [entry.line.wrong for entry in self.faults if not entry.line.cause]
        unstated = [entry.line.noun for entry in self.unstated]
        declared = [entry.line.noun for entry in self.entries if entry.status == "declared"]
        waived = [entry.line.wrong for entry in self.waived]
        if self.verdict == "fair":
            excepted = any(entry.line.cause for entry in self.waived)
            count = "no other cause" if excepted else f"none of the {CAUSE_COUNT} causes"
            head = f"Fair but for what is waived ({', '.join(waived)})" if waived else "Fair"
            parts, waived = [f"{count} of unfair comparison was found"], []
        else:
            head = self.verdict.capitalize()
            count_text = f"{len(causes)} of {CAUSE_COUNT} causes of unfair comparison ({', '.join(causes)})"
            parts = [count_text, *list_nouns("also: ", other_faults)] if causes else list_nouns("", other_faults)
        parts += list_nouns("not stated: ", unstated) + list_nouns("declared to vary: ", declared)
        return f"{head}: {'; '.join(parts + list_nouns('waived: ', waived))}."

    def raise_unfair(self) -> None:
        """Raise one error for the faults that a study must not start with: cause, rows, remedy."""
        refused = [entry for entry in self.faults if entry.line.blocks_start]
        if not refused:
            return
        faults = "; ".join(f"{entry.line.wrong} ({entry.finding})" for entry in refused)
        remedies = "; ".join(entry.line.remedy for entry in refused)
        waivers = ", ".join(f'{entry.factor} = "reason"' for entry in refused)
        raise EquimetricError(
            f"unfair comparison: {faults}; {remedies}; or waive it in the study, which prints it below every table: "
            f"[waivers] {waivers}"
        )

    def footnotes(self) -> tuple[str, ...]:
        """Lines below every table: factors that are declared to vary, waived, or at fault."""
        lines = [f"Waived: {entry.line.wrong} ({entry.finding}): {entry.reason}" for entry in self.waived]
        lines += [
            f"Declared to vary: {entry.line.wrong} ({entry.finding})"
            for entry in self.entries
            if entry.status == "declared"
        ]
        lines += [f"Not fair: {entry.line.wrong} ({entry.finding})" for entry in self.faults]
        return tuple(f"{line.rstrip('.')}." for line in lines)

    def replace(self, entries: Iterable[LedgerEntry], notes: Iterable[str] = ()) -> Ledger:
        """The ledger with newer entries in place of those of the same factors, and further notes."""
        newer = {entry.factor: entry for entry in entries}
        current = {entry.factor: entry for entry in self.entries}
        ordered = tuple(newer.get(name) or current[name] for name in FACTORS if name in newer or name in current)
        return self.model_copy(update={"entries": ordered, "notes": (*self.notes, *notes)})

    def save(self, folder: Path) -> Path:
        """Write ledger.json into the folder of a study."""
        file = folder / LEDGER_FILE
        write_atomically(file, json_document(self.to_dict(), indent=1))
        return file

    @classmethod
    def load(cls, folder: Path) -> Ledger | None:
        """The ledger that a study wrote; None where there is none."""
        file = folder / LEDGER_FILE
        if not file.exists():
            return None
        values = read_json(file, dict, ADVICE)
        schema = values.get("schema", 0)
        if isinstance(schema, int) and schema > LEDGER_SCHEMA:
            raise EquimetricError(f"{file} was written by a newer version of Equimetric; upgrade to read it")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise DamagedFileError(f"{file} is damaged ({error})", ADVICE) from None

    def to_dict(self) -> dict[str, object]:
        """Plain values: what `ledger.json` and `equimetric audit --format json` hold."""
        values: dict[str, object] = json.loads(self.model_dump_json(by_alias=True))
        return values


def list_nouns(label: str, nouns: Sequence[str]) -> list[str]:
    """The nouns as one part of a sentence, if there are any."""
    return [f"{label}{', '.join(nouns)}"] if nouns else []


def waive(entries: Iterable[LedgerEntry], waivers: Mapping[str, str]) -> tuple[list[LedgerEntry], list[str]]:
    """The entries with waived faults marked as such, and a note for each waiver that nothing needs."""
    for factor, reason in waivers.items():
        if factor not in FACTORS:
            raise unknown_name("factor in [waivers]", factor, FACTORS)
        if not reason.strip():
            raise EquimetricError(f"the waiver of {factor!r} has no reason; say why the fault is accepted")
    marked = []
    for entry in entries:
        if entry.factor in waivers and (entry.is_fault or entry.status == "not stated"):
            marked.append(entry.model_copy(update={"status": "waived", "reason": waivers[entry.factor]}))
        else:
            marked.append(entry)
    unneeded = [entry.factor for entry in marked if entry.factor in waivers and entry.status != "waived"]
    return marked, [f"The waiver of {factor} is not needed; leave it out." for factor in unneeded]
