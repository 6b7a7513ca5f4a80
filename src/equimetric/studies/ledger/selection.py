"""The test classes: never for selection, and every look at them is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from equimetric.runs.access_log import RecordedAccess, read_test_accesses
from equimetric.runs.configuration import RunConfig
from equimetric.studies.ledger.conditions import RunsByRow
from equimetric.studies.ledger.record import LedgerEntry, SelectedOn
from equimetric.studies.ledger.settings import join_names

__all__ = ["check_selection", "note_on_test_accesses"]

RUNS_SHOWN = 5


def check_selection(
    runs: RunsByRow,
    *,
    selected_on: SelectedOn = "validation",
    trial_folders: Sequence[Path] = (),
) -> LedgerEntry:
    """Whether nothing was selected on test classes, no trial has opened them, and no row was trained on them.

    `selected_on` is the part of the data by which the study chooses weights and hyper-parameters.
    """
    trained = [row for row, configs in runs.items() if any(trains_on_test(config) for config in configs)]
    opened = [folder for folder in trial_folders if read_test_accesses(folder)]
    metrics = sorted({config.evaluation.selected_by for configs in runs.values() for config in configs})
    faults = []
    if selected_on == "test":
        faults.append(f"weights and hyper-parameters are selected by {', '.join(metrics)} of the test classes")
    if trained:
        faults.append(f"trained on the test classes: {join_names(trained)}")
    if opened:
        folder_names = ", ".join(str(Path(*folder.parts[-2:])) for folder in opened[:RUNS_SHOWN])
        faults.append(f"test classes were opened by {len(opened):,} trials of the search: {folder_names}")
    if faults:
        return LedgerEntry(factor="selection", status="violated", finding="; ".join(faults), methods=tuple(trained))
    return LedgerEntry(
        factor="selection", status="met", finding=f"selected by {', '.join(metrics)} of validation classes"
    )


def trains_on_test(config: RunConfig) -> bool:
    """Whether a run is a final model for deployment, trained on all classes."""
    return config.refit is not None and "test" in config.refit.added_parts


def note_on_test_accesses(folders: Mapping[str, Sequence[Path]]) -> list[str]:
    """Note on how often the test classes of each final run were opened: once by its own test, later by commands.

    A second look is no selection, so it is only noted; what is chosen after it should be tested on other classes.
    """
    looks = {folder: read_test_accesses(folder) for paths in folders.values() for folder in paths}
    opened = {folder: accesses for folder, accesses in looks.items() if accesses}
    if not opened:
        return []
    repeated = {folder: accesses for folder, accesses in opened.items() if len(accesses) > 1}
    if not repeated:
        return [f"Test classes were opened once by each of {len(opened):,} final runs."]
    names_text = "; ".join(
        f"{Path(*folder.parts[-2:])} {len(accesses)} times ({describe_accesses(accesses[1:])})"
        for folder, accesses in list(repeated.items())[:RUNS_SHOWN]
    )
    rest_text = f"; and {len(repeated) - RUNS_SHOWN:,} more" if len(repeated) > RUNS_SHOWN else ""
    return [
        f"Test classes were opened more than once by {len(repeated):,} of {len(opened):,} final runs: "
        f"{names_text}{rest_text}. What is chosen after such a look needs other classes to be tested on."
    ]


def describe_accesses(accesses: Sequence[RecordedAccess]) -> str:
    """'evaluate 2026-01-31, calibrate 2026-02-01'."""
    return ", ".join(f"{access.command} {access.date[:10]}" for access in accesses[:RUNS_SHOWN])
