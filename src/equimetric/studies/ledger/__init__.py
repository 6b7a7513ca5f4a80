"""The fairness ledger: what a comparison keeps equal, declares, waives and violates; ours, or one made elsewhere.

`check_fairness` makes it before the first step of a study; tables and reports read it from the study's folder.
`equimetric.studies.ledger.audit` gives the verdict on finished studies and on described comparisons.
"""

from equimetric.studies.ledger.conditions import check_conditions, check_repetitions, check_tuning
from equimetric.studies.ledger.data_overlap import check_data
from equimetric.studies.ledger.description import ComparisonDescription, audit_description, example_names, load_example
from equimetric.studies.ledger.factors import FACTORS, METHOD_KEYS, Factor
from equimetric.studies.ledger.fairness import check_fairness
from equimetric.studies.ledger.record import LEDGER_FILE, Ledger, LedgerEntry, StudyFacts
from equimetric.studies.ledger.selection import check_selection, note_on_test_accesses

__all__ = [
    "FACTORS",
    "LEDGER_FILE",
    "METHOD_KEYS",
    "ComparisonDescription",
    "Factor",
    "Ledger",
    "LedgerEntry",
    "StudyFacts",
    "audit_description",
    "check_conditions",
    "check_data",
    "check_fairness",
    "check_repetitions",
    "check_selection",
    "check_tuning",
    "example_names",
    "load_example",
    "note_on_test_accesses",
]
