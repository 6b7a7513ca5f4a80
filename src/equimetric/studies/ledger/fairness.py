"""The ledger of a study before its first step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from equimetric.runs.data import RunData
from equimetric.studies.ledger.conditions import (
    RunsByRow,
    check_conditions,
    check_repetitions,
    check_tuning,
    embedding_dims,
    note_on_batches,
)
from equimetric.studies.ledger.data_overlap import check_data
from equimetric.studies.ledger.metrics import note_on_metrics
from equimetric.studies.ledger.record import Ledger, LedgerEntry, SelectedOn, StudyFacts, waive
from equimetric.studies.ledger.selection import check_selection

__all__ = ["check_fairness", "check_runs"]


def check_fairness(
    title: str,
    runs: RunsByRow,
    data: Sequence[RunData],
    *,
    trials: Mapping[str, int | None] | None = None,
    tuned: Collection[str] = (),
    varies: Sequence[str] = (),
    waivers: Mapping[str, str] | None = None,
    selected_on: SelectedOn = "validation",
    trial_folders: Sequence[Path] = (),
) -> Ledger:
    """Everything that must be equal and disjoint in a study; `raise_unfair()` of the ledger refuses what is not.

    Args:
        title: title of the study.
        runs: row → configurations of its final runs, complete: with dimension, batch and image size chosen.
        data: the data of every fold.
        trials: row → trials of its search, None where a row has nothing to tune; no search at all without it.
        tuned: dotted keys of conditions that the search chooses for each row.
        varies: dotted keys, tables or factors that the study or its protocol declares to vary, beside the method, its
            options, its learner and the learning rate of its own parameters.
        waivers: factor → why its fault is accepted.
        selected_on: the part of the data by which weights and hyper-parameters are chosen.
        trial_folders: runs of the search, which must not have opened the test classes.
    """
    facts = StudyFacts(
        trials=dict(trials or {}),
        dims=embedding_dims(runs, data[0]),
        selected_on=selected_on,
        tuned=tuple(sorted(tuned)),
    )
    unwaived = [*check_runs(runs, facts, varies=varies, trial_folders=trial_folders), *check_data(data)]
    entries, notes = waive(unwaived, waivers or {})
    metrics = [name for configs in runs.values() for name in configs[0].evaluation.names()]
    return Ledger(
        title=title,
        varies=tuple(varies),
        waivers=dict(waivers or {}),
        entries=(),
        notes=(*notes, *note_on_metrics(metrics), *note_on_batches(runs, varies)),
        facts=facts,
    ).replace(entries)


def check_runs(
    runs: RunsByRow, facts: StudyFacts, *, varies: Sequence[str] = (), trial_folders: Sequence[Path] = ()
) -> list[LedgerEntry]:
    """The entries of all factors but those of the data."""
    return [
        *check_conditions(runs, varies=varies, dims=facts.dims, tuned=facts.tuned),
        check_repetitions(runs),
        check_tuning(runs, facts.trials, varies=varies),
        check_selection(runs, selected_on=facts.selected_on, trial_folders=trial_folders),
    ]
