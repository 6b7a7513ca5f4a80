"""How many bytes the parts of a page may take, so that a page of twenty methods stays below 8 MB."""

from __future__ import annotations

from equimetric.studies.records import StudyRecord

__all__ = ["PAGE_BYTES", "image_byte_budget", "other_bytes", "threshold_byte_budget"]

PAGE_BYTES = 8_000_000
SCRIPT_BYTES, ROW_BYTES = 1_300_000, 52_000
"""Of the scripts and of sections whose size hardly depends on the study, and of one row in the other sections."""

METHODS_BYTES, METHOD_BYTES = 4_000_000, 200_000
"""Of the thresholds of all methods at most, and of one method in full detail."""

PICTURES_BYTES = 4_000_000
SHARES = {"faults": 0.4, "gallery": 0.35, "compare": 0.25}


def other_bytes(rows: int) -> int:
    """Bytes of everything but thresholds and images, in the page of a study with `rows` rows."""
    return SCRIPT_BYTES + ROW_BYTES * rows


def threshold_byte_budget(rows: int, variants: int) -> int:
    """Bytes for the thresholds of all `variants`: each method with and without its cohort."""
    return min(METHODS_BYTES, METHOD_BYTES * variants, PAGE_BYTES - other_bytes(rows))


def image_byte_budget(study: StudyRecord, *sections: str) -> int:
    """Bytes for the images of some sections; the more methods have thresholds, the fewer."""
    runs = [profile.run for profile in study.profiles.values()]
    variants = sum((run.thresholds is not None) + (run.plain is not None) for run in runs)
    rows = len(study.methods)
    left = PAGE_BYTES - other_bytes(rows) - threshold_byte_budget(rows, variants)
    return int(sum(map(SHARES.__getitem__, sections or SHARES)) * min(PICTURES_BYTES, left))
